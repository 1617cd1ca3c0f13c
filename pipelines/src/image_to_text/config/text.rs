//! `text_config` → sizes of the language model.

use serde::Deserialize;

use super::{Checked, Family, base, only, positive};

/// Sizes of the language model.
#[derive(Debug, Clone, PartialEq)]
pub struct TextConfig {
    /// Rows of the embedding table.
    pub vocabulary: usize,
    /// Channels of a token.
    pub hidden: usize,
    /// What mixes the tokens in each layer.
    pub mixers: Vec<Mixer>,
    /// What follows the mixer in every layer.
    pub feed_forward: FeedForward,
    /// Query heads of full attention.
    pub heads: usize,
    /// Key and value heads of full attention.
    pub kv_heads: usize,
    /// Channels of a head of full attention, even.
    pub head_dim: usize,
    /// Whether the output of full attention passes a gate that the query projection has rows for.
    pub gated_attention: bool,
    /// Sizes of the delta-net layers, where there are any.
    pub delta_net: Option<DeltaNetConfig>,
    /// Epsilon of every RMS norm.
    pub eps: f32,
    /// Whether norms are stored as the difference from 1.
    pub centred_norms: bool,
    /// Channels of a head that turn with the position, even.
    pub rotary_dim: usize,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Frequencies of the time, height and width axes.
    pub mrope_section: [usize; 3],
}

/// What mixes the tokens in a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mixer {
    /// Softmax attention to every earlier token.
    FullAttention,
    /// A recurrent state under the gated delta rule.
    DeltaNet,
}

/// Sizes of a gated delta-net layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeltaNetConfig {
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// Heads of values.
    pub value_heads: usize,
    /// Channels of a query or key.
    pub key_dim: usize,
    /// Channels of a value.
    pub value_dim: usize,
    /// Tokens that the convolution reaches over.
    pub taps: usize,
}

/// What follows the mixer in every layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeedForward {
    /// One network with so many channels inside.
    Dense(usize),
    /// A few of many small networks, and one that every token passes.
    Experts {
        /// Networks to choose from.
        count: usize,
        /// Networks that a token passes.
        chosen: usize,
        /// Channels inside each.
        intermediate: usize,
        /// Channels inside the one for all.
        shared: usize,
    },
}

impl TextConfig {
    /// What is added to the stored weights of norms.
    #[must_use]
    pub fn norm_offset(&self) -> f32 {
        if self.centred_norms { 1.0 } else { 0.0 }
    }
}

/// `text_config` as it is written. Only what the configuration classes themselves fill in, and what published checkpoints
/// leave out, is optional here.
#[derive(Deserialize)]
pub(super) struct RawText {
    model_type: String,
    vocab_size: usize,
    hidden_size: usize,
    /// Not there in mixtures of experts.
    intermediate_size: Option<usize>,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: usize,
    head_dim: usize,
    hidden_act: String,
    rms_norm_eps: f32,
    attention_bias: bool,
    /// Written by transformers 5.
    rope_parameters: Option<RawRope>,
    /// Written by transformers 4, as on the Hub, together with `rope_theta`.
    rope_scaling: Option<RawRope>,
    rope_theta: Option<f64>,
    // Qwen3.5
    layer_types: Option<Vec<String>>,
    full_attention_interval: Option<usize>,
    partial_rotary_factor: Option<f64>,
    attn_output_gate: Option<bool>,
    output_gate_type: Option<String>,
    linear_conv_kernel_dim: Option<usize>,
    linear_key_head_dim: Option<usize>,
    linear_value_head_dim: Option<usize>,
    linear_num_key_heads: Option<usize>,
    linear_num_value_heads: Option<usize>,
    // its mixture of experts
    num_experts: Option<usize>,
    num_experts_per_tok: Option<usize>,
    moe_intermediate_size: Option<usize>,
    shared_expert_intermediate_size: Option<usize>,
    mlp_only_layers: Option<Vec<usize>>,
}

#[derive(Deserialize)]
struct RawRope {
    rope_type: Option<String>,
    /// The name of `rope_type` in older files, which may hold both.
    #[serde(rename = "type")]
    older_type: Option<String>,
    rope_theta: Option<f64>,
    mrope_section: Option<[usize; 3]>,
    /// The class interleaves with or without this key.
    mrope_interleaved: Option<bool>,
    partial_rotary_factor: Option<f64>,
}

/// A key that this family must have.
fn need<T>(key: &str, value: Option<T>) -> Checked<T> {
    value.ok_or_else(|| format!("`text_config` has no `{key}`"))
}

/// Keys that another family has.
fn foreign(family: Family, keys: &[(&str, bool)]) -> Checked<()> {
    match keys.iter().find(|(_, found)| *found) {
        Some((key, _)) => Err(format!("`text_config.{key}` does not belong to a model of type {}", family.name())),
        None => Ok(()),
    }
}

impl RawText {
    pub(super) fn check(self, family: Family) -> Checked<TextConfig> {
        only("text_config.model_type", &self.model_type, &[format!("{}_text", family.name())])?;
        only("text_config.hidden_act", &self.hidden_act, &["silu".to_owned()])?;
        only("text_config.attention_bias", &self.attention_bias, &[false])?;
        positive(&[
            ("text_config.vocab_size", self.vocab_size),
            ("text_config.hidden_size", self.hidden_size),
            ("text_config.num_hidden_layers", self.num_hidden_layers),
            ("text_config.num_attention_heads", self.num_attention_heads),
            ("text_config.num_key_value_heads", self.num_key_value_heads),
            ("text_config.head_dim", self.head_dim),
        ])?;
        if self.num_hidden_layers > 1 << 12 {
            return Err(format!("`text_config.num_hidden_layers` is {}; expected 1 to 4096", self.num_hidden_layers));
        }
        if !self.num_attention_heads.is_multiple_of(self.num_key_value_heads) {
            return Err(format!(
                "`text_config.num_attention_heads` is {}, no multiple of `num_key_value_heads`, {}",
                self.num_attention_heads, self.num_key_value_heads
            ));
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err(format!("`text_config.head_dim` is {}; expected an even number", self.head_dim));
        }
        if !(self.rms_norm_eps.is_finite() && self.rms_norm_eps > 0.0) {
            return Err(format!("`text_config.rms_norm_eps` is {}; expected above 0", self.rms_norm_eps));
        }
        let newer = family != Family::Qwen3Vl;
        let (rope_theta, mrope_section, rotary_dim) = self.rope(family)?;
        Ok(TextConfig {
            vocabulary: self.vocab_size,
            hidden: self.hidden_size,
            mixers: self.mixers(family)?,
            feed_forward: self.feed_forward(family)?,
            heads: self.num_attention_heads,
            kv_heads: self.num_key_value_heads,
            head_dim: self.head_dim,
            gated_attention: newer,
            delta_net: if newer { Some(self.delta_net()?) } else { None },
            eps: self.rms_norm_eps,
            centred_norms: newer,
            rotary_dim,
            rope_theta,
            mrope_section,
        })
    }

    fn rope(&self, family: Family) -> Checked<(f64, [usize; 3], usize)> {
        let (key, rope) = match (&self.rope_parameters, &self.rope_scaling) {
            (Some(rope), None) => ("text_config.rope_parameters", rope),
            (None, Some(rope)) => ("text_config.rope_scaling", rope),
            (None, None) => return Err("`text_config` has neither `rope_parameters` nor `rope_scaling`".into()),
            (Some(_), Some(_)) => return Err("`text_config` has both `rope_parameters` and `rope_scaling`".into()),
        };
        let default = "default".to_owned();
        let kind = rope.rope_type.as_ref().or(rope.older_type.as_ref()).unwrap_or(&default);
        only(&format!("{key}.rope_type"), kind, std::slice::from_ref(&default))?;
        only(&format!("{key}.mrope_interleaved"), &rope.mrope_interleaved.unwrap_or(true), &[true])?;
        let theta = rope.rope_theta.or(self.rope_theta).ok_or("`text_config` has no `rope_theta`")?;
        // where a file has none, the sections and the factor are the class's own
        let (section, factor) = match family {
            Family::Qwen3Vl => ([24, 20, 20], 1.0),
            Family::Qwen35 | Family::Qwen35Moe => ([11, 11, 10], 0.25),
        };
        let factor = rope.partial_rotary_factor.or(self.partial_rotary_factor).unwrap_or(factor);
        let rotary_dim = (self.head_dim as f64 * factor) as usize;
        let whole = family == Family::Qwen3Vl && rotary_dim != self.head_dim;
        if !(factor.is_finite() && rotary_dim.is_multiple_of(2))
            || rotary_dim == 0
            || rotary_dim > self.head_dim
            || whole
        {
            return Err(format!(
                "`partial_rotary_factor` {factor} of {} channels is {rotary_dim}; expected {}",
                self.head_dim,
                if family == Family::Qwen3Vl { "all of them" } else { "an even number from 2 to all of them" }
            ));
        }
        Ok((base("text_config.rope_theta", theta)?, rope.mrope_section.unwrap_or(section), rotary_dim))
    }

    fn mixers(&self, family: Family) -> Checked<Vec<Mixer>> {
        let layers = self.num_hidden_layers;
        if family == Family::Qwen3Vl {
            let found = [
                ("layer_types", self.layer_types.is_some()),
                ("full_attention_interval", self.full_attention_interval.is_some()),
                ("linear_num_value_heads", self.linear_num_value_heads.is_some()),
                ("attn_output_gate", self.attn_output_gate.is_some()),
            ];
            foreign(family, &found)?;
            return Ok(vec![Mixer::FullAttention; layers]);
        }
        only("text_config.attn_output_gate", &self.attn_output_gate.unwrap_or(true), &[true])?;
        let swish = "swish".to_owned();
        only(
            "text_config.output_gate_type",
            self.output_gate_type.as_ref().unwrap_or(&swish),
            std::slice::from_ref(&swish),
        )?;
        let Some(names) = &self.layer_types else {
            // the class's own pattern
            let interval = self.full_attention_interval.unwrap_or(4);
            positive(&[("text_config.full_attention_interval", interval)])?;
            let full = |layer: usize| (layer + 1).is_multiple_of(interval);
            return Ok((0..layers)
                .map(|layer| if full(layer) { Mixer::FullAttention } else { Mixer::DeltaNet })
                .collect());
        };
        if names.len() != layers {
            return Err(format!("`text_config.layer_types` has {} entries for {layers} layers", names.len()));
        }
        names
            .iter()
            .map(|name| match name.as_str() {
                "full_attention" => Ok(Mixer::FullAttention),
                "linear_attention" => Ok(Mixer::DeltaNet),
                other => Err(format!(
                    "`text_config.layer_types` has {other:?}; implemented is \"full_attention\" or \"linear_attention\""
                )),
            })
            .collect()
    }

    fn delta_net(&self) -> Checked<DeltaNetConfig> {
        let sizes = DeltaNetConfig {
            key_heads: need("linear_num_key_heads", self.linear_num_key_heads)?,
            value_heads: need("linear_num_value_heads", self.linear_num_value_heads)?,
            key_dim: need("linear_key_head_dim", self.linear_key_head_dim)?,
            value_dim: need("linear_value_head_dim", self.linear_value_head_dim)?,
            taps: need("linear_conv_kernel_dim", self.linear_conv_kernel_dim)?,
        };
        let DeltaNetConfig { key_heads, value_heads, key_dim, value_dim, taps } = sizes;
        super::within(
            1 << 14,
            &[
                ("text_config.linear_num_key_heads", key_heads),
                ("text_config.linear_num_value_heads", value_heads),
                ("text_config.linear_key_head_dim", key_dim),
                ("text_config.linear_value_head_dim", value_dim),
                ("text_config.linear_conv_kernel_dim", taps),
            ],
        )?;
        if !value_heads.is_multiple_of(key_heads) {
            return Err(format!(
                "`text_config.linear_num_value_heads` is {value_heads}, no multiple of `linear_num_key_heads`, {key_heads}"
            ));
        }
        Ok(sizes)
    }

    fn feed_forward(&self, family: Family) -> Checked<FeedForward> {
        if family != Family::Qwen35Moe {
            foreign(family, &[("num_experts", self.num_experts.is_some())])?;
            let intermediate = need("intermediate_size", self.intermediate_size)?;
            positive(&[("text_config.intermediate_size", intermediate)])?;
            return Ok(FeedForward::Dense(intermediate));
        }
        only("text_config.mlp_only_layers", self.mlp_only_layers.as_ref().unwrap_or(&Vec::new()), &[Vec::new()])?;
        let count = need("num_experts", self.num_experts)?;
        let chosen = need("num_experts_per_tok", self.num_experts_per_tok)?;
        let intermediate = need("moe_intermediate_size", self.moe_intermediate_size)?;
        let shared = need("shared_expert_intermediate_size", self.shared_expert_intermediate_size)?;
        positive(&[
            ("text_config.num_experts", count),
            ("text_config.num_experts_per_tok", chosen),
            ("text_config.moe_intermediate_size", intermediate),
            ("text_config.shared_expert_intermediate_size", shared),
        ])?;
        super::within(1 << 16, &[("text_config.num_experts", count)])?;
        if chosen > count {
            return Err(format!("`text_config.num_experts_per_tok` is {chosen} of {count} experts"));
        }
        Ok(FeedForward::Experts { count, chosen, intermediate, shared })
    }
}
