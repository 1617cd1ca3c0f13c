//! Picture → patches and their grid.

use std::path::Path;

use image::RgbImage;
use serde::Deserialize;

use crate::checkpoint::{Files, parse_config};
use crate::resample::{self, Filter, Precision};
use crate::{Error, Result};

/// How many patches a picture has, and how they are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Rows of patches, a multiple of `merge`.
    pub height: usize,
    /// Columns of patches, a multiple of `merge`.
    pub width: usize,
    /// Side of the square of patches that becomes one visual token.
    pub merge: usize,
}

impl Grid {
    /// Number of patches.
    #[must_use]
    pub fn patches(self) -> usize {
        self.height * self.width
    }

    /// Rows and columns of visual tokens.
    #[must_use]
    pub fn merged(self) -> (usize, usize) {
        (self.height / self.merge, self.width / self.merge)
    }

    /// Number of visual tokens.
    #[must_use]
    pub fn tokens(self) -> usize {
        let (height, width) = self.merged();
        height * width
    }

    /// Row and column of every patch in the order of the model: squares of `merge * merge` patches row by row, and the
    /// patches of a square row by row.
    pub fn order(self) -> impl Iterator<Item = (usize, usize)> {
        let (rows, columns) = self.merged();
        let merge = self.merge;
        (0..rows * columns).flat_map(move |square| {
            let (top, left) = (square / columns * merge, square % columns * merge);
            (0..merge * merge).map(move |patch| (top + patch / merge, left + patch % merge))
        })
    }
}

/// A picture as the vision tower reads it.
#[derive(Debug, Clone)]
pub struct Patches {
    /// `[grid.patches(), channels * temporal * patch * patch]`, normalised, in the order of [`Grid::order`].
    pub values: Vec<f32>,
    /// Where the patches stand.
    pub grid: Grid,
}

/// The settings of a `Qwen2VLImageProcessor`.
#[derive(Debug, Clone)]
pub struct ImageProcessor {
    patch: usize,
    merge: usize,
    temporal: usize,
    min_pixels: usize,
    max_pixels: usize,
    /// Mean and standard deviation of a channel, on the scale of 0 to 255.
    normal: [(f32, f32); 3],
    precision: Precision,
}

/// `preprocessor_config.json`, or `image_processor` of `processor_config.json`. Optional keys have the value of the class
/// where a file leaves them out, as those on the Hub do.
#[derive(Deserialize)]
struct Raw {
    image_processor_type: String,
    patch_size: usize,
    merge_size: usize,
    temporal_patch_size: usize,
    image_mean: [f64; 3],
    image_std: [f64; 3],
    size: Option<Size>,
    /// Older names of the pixel range, which win over `size`.
    min_pixels: Option<usize>,
    max_pixels: Option<usize>,
    do_resize: Option<bool>,
    do_rescale: Option<bool>,
    do_normalize: Option<bool>,
    do_convert_rgb: Option<bool>,
    rescale_factor: Option<f64>,
    resample: Option<u32>,
}

#[derive(Deserialize)]
struct Size {
    shortest_edge: usize,
    longest_edge: usize,
}

/// `processor_config.json`, as transformers 5 saves it.
#[derive(Deserialize)]
struct Processor {
    image_processor: Raw,
}

/// Settings of videos, of batching, and of what the picture passes through before it is a picture here.
const IGNORED: &[&str] = &[
    "crop_size",
    "data_format",
    "default_to_square",
    "device",
    "disable_grouping",
    "do_center_crop",
    "do_pad",
    "input_data_format",
    "pad_size",
    "processor_class",
    "return_tensors",
];

impl ImageProcessor {
    /// Reads the settings from `folder` (`""` for the root): `preprocessor_config.json` as on the Hub, or else
    /// `processor_config.json` as transformers 5 saves it.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when both files are missing, a number is missing, or something is asked for that is not
    /// implemented.
    pub fn load(files: &Files, folder: &str) -> Result<Self> {
        let rel = |name: &str| if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
        let hub = rel("preprocessor_config.json");
        let (name, raw) = if files.exists(&hub) {
            let path = files.path(&hub);
            let raw = parse_config(&path, &files.read(&hub)?, IGNORED)?;
            (path, raw)
        } else {
            let name = rel("processor_config.json");
            let processor: Processor = files.json(&name)?;
            (files.path(&name), processor.image_processor)
        };
        Self::check(&name, &raw)
    }

    fn check(file: &Path, raw: &Raw) -> Result<Self> {
        let fail = |problem: String| Err(Error::checkpoint(file, problem));
        let precision = match raw.image_processor_type.as_str() {
            "Qwen2VLImageProcessor" | "Qwen2VLImageProcessorFast" => Precision::Torch,
            "Qwen2VLImageProcessorPil" => Precision::Pillow,
            other => {
                return fail(format!("`image_processor_type` is {other:?}; implemented is \"Qwen2VLImageProcessor\""));
            }
        };
        for (key, value) in [
            ("do_resize", raw.do_resize),
            ("do_rescale", raw.do_rescale),
            ("do_normalize", raw.do_normalize),
            ("do_convert_rgb", raw.do_convert_rgb),
        ] {
            if value == Some(false) {
                return fail(format!("`{key}` is false; implemented is true"));
            }
        }
        if raw.resample.is_some_and(|filter| filter != 3) {
            return fail(format!("`resample` is {:?}; implemented is 3, bicubic", raw.resample));
        }
        let sizes = [raw.patch_size, raw.merge_size, raw.temporal_patch_size];
        if sizes.iter().any(|size| !(1..=1024).contains(size)) {
            return fail(format!(
                "`patch_size`, `merge_size` and `temporal_patch_size` are {sizes:?}; expected 1 to 1024"
            ));
        }
        let min_pixels = raw.min_pixels.or(raw.size.as_ref().map(|size| size.shortest_edge));
        let max_pixels = raw.max_pixels.or(raw.size.as_ref().map(|size| size.longest_edge));
        let (Some(min_pixels), Some(max_pixels)) = (min_pixels, max_pixels) else {
            return fail("has neither `size` nor `min_pixels` and `max_pixels`".into());
        };
        if min_pixels == 0 || max_pixels < min_pixels {
            return fail(format!("pixels from {min_pixels} to {max_pixels} are no range"));
        }
        let scale = 1.0 / raw.rescale_factor.unwrap_or(1.0 / 255.0);
        if !scale.is_finite() || raw.image_std.contains(&0.0) {
            return fail("`rescale_factor` or `image_std` is 0".into());
        }
        // Mean and deviation are f32 before they are scaled, in f32.
        let normal =
            std::array::from_fn(|c| (raw.image_mean[c] as f32 * scale as f32, raw.image_std[c] as f32 * scale as f32));
        Ok(Self {
            patch: raw.patch_size,
            merge: raw.merge_size,
            temporal: raw.temporal_patch_size,
            min_pixels,
            max_pixels,
            normal,
            precision,
        })
    }

    /// Side of a patch in pixels.
    #[must_use]
    pub fn patch(&self) -> usize {
        self.patch
    }

    /// Side of the square of patches that becomes one visual token.
    #[must_use]
    pub fn merge(&self) -> usize {
        self.merge
    }

    /// Least and greatest number of pixels that a picture has after the resize.
    #[must_use]
    pub fn pixel_range(&self) -> (usize, usize) {
        (self.min_pixels, self.max_pixels)
    }

    /// The size (width, height) that a picture is resized to: sides are multiples of `patch * merge`, nearest to the
    /// picture's own, within the range of pixels (`smart_resize`).
    ///
    /// # Errors
    /// [`Error::Input`] when a side is 0 or one side is more than 200 times the other.
    pub fn target(&self, width: usize, height: usize) -> Result<(usize, usize)> {
        const LONGEST: f64 = 200.0;
        if width == 0 || height == 0 {
            return Err(Error::input(format!("the picture is {width}x{height} pixels: there is nothing to look at")));
        }
        let (w, h) = (width as f64, height as f64);
        if w.max(h) / w.min(h) > LONGEST {
            return Err(Error::input(format!(
                "the picture is {width}x{height}: one side is more than {LONGEST} times the other; crop it"
            )));
        }
        let factor = (self.patch * self.merge) as f64;
        let [min, max] = [self.min_pixels as f64, self.max_pixels as f64];
        let nearest = |side: f64| (side / factor).round_ties_even() * factor;
        let mut sides = [nearest(w), nearest(h)];
        if sides[0] * sides[1] > max {
            let shrink = (w * h / max).sqrt();
            sides = [w, h].map(|side| ((side / shrink / factor).floor() * factor).max(factor));
        } else if sides[0] * sides[1] < min {
            let stretch = (min / (h * w)).sqrt();
            sides = [w, h].map(|side| (side * stretch / factor).ceil() * factor);
        }
        Ok((sides[0] as usize, sides[1] as usize))
    }

    /// Resizes, normalises and cuts a picture.
    ///
    /// # Errors
    /// As [`target`](Self::target).
    pub fn patches(&self, picture: &RgbImage) -> Result<Patches> {
        let size = (picture.width() as usize, picture.height() as usize);
        let target = self.target(size.0, size.1)?;
        if target == size {
            return Ok(self.cut(picture.as_raw(), target));
        }
        let pixels = resample::resize::<3>(picture.as_raw(), size, target, Filter::Bicubic, self.precision);
        Ok(self.cut(&pixels, target))
    }

    /// Patches are flattened as (channel, frame, row, column); the frames of a picture are all alike.
    fn cut(&self, pixels: &[u8], (width, height): (usize, usize)) -> Patches {
        let grid = Grid { height: height / self.patch, width: width / self.patch, merge: self.merge };
        let mut values = Vec::with_capacity(width * height * 3 * self.temporal);
        for (row, column) in grid.order() {
            for (channel, (mean, deviation)) in self.normal.iter().enumerate() {
                for _ in 0..self.temporal {
                    for y in row * self.patch..(row + 1) * self.patch {
                        let start = y * width + column * self.patch;
                        let line = pixels[start * 3..(start + self.patch) * 3].iter().skip(channel).step_by(3);
                        values.extend(line.map(|&value| (f32::from(value) - mean) / deviation));
                    }
                }
            }
        }
        Patches { values, grid }
    }
}
