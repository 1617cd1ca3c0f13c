//! Experts stored one by one, as transformers 5 saves them, and together, as on the Hub, are the same model.

use std::collections::BTreeMap;
use std::fs;

use safetensors::SafeTensors;
use safetensors::tensor::TensorView;

use crate::{Reference, fixture};

#[test]
fn experts_may_be_stored_together() {
    let (folder, values) = (fixture("looking/qwen3_5_moe"), fixture("looking/qwen3_5_moe.safetensors"));
    let bytes = fs::read(folder.join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut kept = BTreeMap::new();
    let mut stacks = BTreeMap::<String, BTreeMap<(usize, bool), (Vec<u8>, Vec<usize>)>>::new();
    for (name, view) in file.tensors() {
        let Some((layer, rest)) = name.split_once(".experts.") else {
            kept.insert(name, (view.dtype(), view.shape().to_vec(), view.data().to_vec()));
            continue;
        };
        let parts: Vec<&str> = rest.split('.').collect();
        let stack = if parts[1] == "down_proj" { "down_proj" } else { "gate_up_proj" };
        let at = (parts[0].parse().unwrap(), parts[1] == "up_proj");
        let stored = (view.data().to_vec(), view.shape().to_vec());
        stacks.entry(format!("{layer}.experts.{stack}")).or_default().insert(at, stored);
    }
    let dtype = kept["lm_head.weight"].0;
    for (name, parts) in stacks {
        let (_, shape) = parts.first_key_value().unwrap().1;
        let rows = if name.ends_with("gate_up_proj") { 2 * shape[0] } else { shape[0] };
        let shape = vec![5, rows, shape[1]];
        kept.insert(name, (dtype, shape, parts.into_values().flat_map(|(data, _)| data).collect()));
    }
    assert!(kept.keys().any(|name| name.ends_with(".experts.gate_up_proj")));
    let views =
        kept.iter().map(|(name, (dtype, shape, data))| (name, TensorView::new(*dtype, shape.clone(), data).unwrap()));
    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
    fs::copy(folder.join("config.json"), other.path().join("config.json")).unwrap();

    let logits = |folder| Reference::open(folder, &values).unwrap().at_once(&[]).unwrap();
    assert_eq!(logits(other.path()), logits(&folder));
}
