//! A checkpoint against what transformers computed with it (`tests/fixtures/looking.py`), stage by stage.

use std::collections::BTreeMap;
use std::path::Path;

use atelier_kernels::Backend;
use atelier_kernels::cpu::Cpu;
use atelier_pipelines::checkpoint::Files;
use atelier_pipelines::image_to_text::{Cache, Features, Grid, Inputs, Model, Patches};
use atelier_pipelines::progress::Cancel;
use atelier_pipelines::{Error, Result};
use safetensors::{Dtype, SafeTensors};

type Tensor = <Cpu as Backend>::Tensor;
/// Shapes and values by name.
type Values = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// The largest difference over the largest magnitude of a stage's values that counts as equal: single precision with
/// another order of summation.
pub(crate) const STAGE: f32 = 1e-4;

/// A model, and the reference's values for one conversation.
pub(crate) struct Reference {
    pub(crate) model: Model<Cpu>,
    values: Values,
    pub(crate) ids: Vec<u32>,
    pub(crate) inputs: Inputs<Cpu>,
    features: Vec<Features<Cpu>>,
    /// Stage, largest difference over the largest magnitude.
    pub(crate) differences: Vec<(String, f32)>,
}

impl Reference {
    /// Opens both, and looks at the pictures.
    pub(crate) fn open(folder: &Path, values: &Path) -> Result<Self> {
        let model = Model::open(&Cpu::default(), &Files::folder(folder))?;
        let values = read(values)?;
        let ids: Vec<u32> = integers(&values, "input_ids")?;
        let mut reference =
            Self { inputs: model.inputs(&[], &[])?, model, values, ids, features: Vec::new(), differences: Vec::new() };
        reference.look()?;
        let features: Vec<&Features<Cpu>> = reference.features.iter().collect();
        reference.inputs = reference.model.inputs(&reference.ids, &features)?;
        Ok(reference)
    }

    /// Compares everything up to the logits.
    pub(crate) fn read(&mut self) -> Result<()> {
        let positions: Vec<f32> =
            (0..3).flat_map(|axis| self.inputs.positions.iter().map(move |at| at[axis] as f32)).collect();
        self.compare("position_ids", &positions)?;
        let (mut hidden, backend) = (Vec::new(), self.backend().clone());
        let decoder = self.model.decoder();
        let states = decoder.forward_observed(&backend, &self.inputs, None, &Cancel::default(), |layer, x| {
            hidden.push((format!("text.hidden.{layer}"), backend.download(x)?));
            Ok(())
        })?;
        for (stage, found) in hidden {
            self.compare(&stage, &found)?;
        }
        let logits = self.logits(&states)?;
        self.compare("logits", &logits)
    }

    /// The logits of the prompt, read in chunks.
    pub(crate) fn in_chunks(&self, cache: &mut Cache<Cpu>, chunk: usize) -> Result<Vec<f32>> {
        let (mut logits, mut start) = (Vec::new(), 0);
        while start < self.ids.len() {
            let length = chunk.min(self.ids.len() - start);
            let part = self.inputs.slice(self.backend(), start, length)?;
            logits.extend(self.logits(&self.model.read(&part, Some(cache), &Cancel::default())?)?);
            start += length;
        }
        Ok(logits)
    }

    /// As many tokens as the reference went on with, each the most probable one that stands for no picture; and the
    /// logits that they were chosen by.
    pub(crate) fn greedy(&self, cache: &mut Cache<Cpu>) -> Result<(Vec<u32>, Vec<Vec<f32>>)> {
        let config = self.model.config();
        let (mut tokens, mut all) = (Vec::new(), Vec::new());
        let mut logits =
            self.in_chunks(cache, self.ids.len())?.split_off((self.ids.len() - 1) * config.text.vocabulary);
        for step in 0..self.expected_tokens()?.len() {
            let allowed = |token: &usize| ![config.image_token_id, config.video_token_id].contains(&(*token as u32));
            let best = (0..logits.len()).filter(allowed).max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
            let token = best.ok_or_else(|| Error::input("no logits"))? as u32;
            all.push(logits);
            tokens.push(token);
            logits = self.next(token, step as u32, cache)?;
        }
        Ok((tokens, all))
    }

    /// The logits after one more token.
    fn next(&self, token: u32, step: u32, cache: &mut Cache<Cpu>) -> Result<Vec<f32>> {
        let position = self.inputs.next + step;
        let inputs = Inputs {
            embeddings: self.model.embed(&[token])?,
            positions: vec![[position; 3]],
            next: position + 1,
            image_rows: Vec::new(),
            deepstack: Vec::new(),
        };
        self.logits(&self.model.read(&inputs, Some(cache), &Cancel::default())?)
    }

    /// The logits of the prompt and `tokens` after it, read at once without a cache.
    pub(crate) fn at_once(&self, tokens: &[u32]) -> Result<Vec<f32>> {
        let features: Vec<&Features<Cpu>> = self.features.iter().collect();
        let inputs = self.model.inputs(&[&self.ids, tokens].concat(), &features)?;
        self.logits(&self.model.read(&inputs, None, &Cancel::default())?)
    }

    pub(crate) fn expected_tokens(&self) -> Result<Vec<u32>> {
        integers(&self.values, "greedy")
    }

    /// Notes the difference from the reference's values.
    pub(crate) fn compare(&mut self, stage: &str, found: &[f32]) -> Result<()> {
        let difference = difference(found, value(&self.values, stage)?);
        self.differences.push((stage.to_owned(), difference));
        Ok(())
    }

    pub(crate) fn logits(&self, states: &Tensor) -> Result<Vec<f32>> {
        Ok(self.backend().download(&self.model.logits(states)?)?)
    }

    pub(crate) fn backend(&self) -> &Cpu {
        self.model.backend()
    }

    fn look(&mut self) -> Result<()> {
        let Ok(grids) = integers(&self.values, "image_grid_thw") else { return Ok(()) };
        let (pixels, merge) = (value(&self.values, "pixel_values")?, self.model.config().vision.merge);
        let width = self.values.get("pixel_values").map_or(0, |(shape, _)| shape[1]);
        let (mut start, mut all) = (0, BTreeMap::<String, Vec<f32>>::new());
        let backend = self.backend().clone();
        for grid in grids.chunks(3) {
            let grid = Grid { height: grid[1] as usize, width: grid[2] as usize, merge };
            let values = pixels[start * width..][..grid.patches() * width].to_vec();
            start += grid.patches();
            let seen = self.model.vision().forward_observed(
                &backend,
                &Patches { values, grid },
                &Cancel::default(),
                |block, x| {
                    all.entry(format!("vision.hidden.{block}")).or_default().extend(backend.download(x)?);
                    Ok(())
                },
            )?;
            all.entry("vision.features".into()).or_default().extend(backend.download(&seen.tokens)?);
            for (index, x) in seen.deepstack.iter().enumerate() {
                all.entry(format!("vision.deepstack.{index}")).or_default().extend(backend.download(x)?);
            }
            self.features.push(seen);
        }
        all.iter().try_for_each(|(stage, found)| self.compare(stage, found))
    }
}

/// The largest difference over the largest magnitude; infinite when the numbers of values differ or one is no number.
pub(crate) fn difference(found: &[f32], expected: &[f32]) -> f32 {
    if found.len() != expected.len() || found.iter().any(|x| !x.is_finite()) {
        return f32::INFINITY;
    }
    let largest = expected.iter().fold(0.0f32, |a, b| a.max(b.abs()));
    let difference = found.iter().zip(expected).fold(0.0f32, |a, (x, y)| a.max((x - y).abs()));
    difference / largest.max(f32::MIN_POSITIVE)
}

fn value<'a>(values: &'a Values, name: &str) -> Result<&'a [f32]> {
    values.get(name).map(|(_, values)| values.as_slice()).ok_or_else(|| Error::input(format!("no value {name}")))
}

fn integers(values: &Values, name: &str) -> Result<Vec<u32>> {
    Ok(value(values, name)?.iter().map(|&x| x as u32).collect())
}

/// All tensors as f32 (integers are below 2^24) with their shapes.
fn read(path: &Path) -> Result<Values> {
    let bytes = std::fs::read(path).map_err(|error| Error::io(path, error))?;
    let damaged = |error: &dyn std::fmt::Display| Error::checkpoint(path, error.to_string());
    let file = SafeTensors::deserialize(&bytes).map_err(|error| damaged(&error))?;
    let convert = |dtype, data: &[u8]| match dtype {
        Dtype::F32 => Ok(data.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect()),
        Dtype::I64 => Ok(data.as_chunks().0.iter().map(|&b| i64::from_le_bytes(b) as f32).collect()),
        other => Err(damaged(&format!("{other:?} is not expected here"))),
    };
    let tensors = file.tensors().into_iter();
    tensors.map(|(name, view)| Ok((name, (view.shape().to_vec(), convert(view.dtype(), view.data())?)))).collect()
}
