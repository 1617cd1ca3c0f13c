//! Two-dimensional convolution as a matrix product whose columns are patches of pixels, gathered while packing.

#![expect(clippy::inline_always, reason = "compiled for the instructions of each kernel")]

use std::ops::Range;

use candle_core::Tensor;

use super::gemm::{self, Columns, Kernel, Layout, Processor};
use super::{Products, tensor};
use crate::{Conv2d, Error, Matrix, Result};

/// Convolution of `[c, h, w]` with weight `[out, c * kernel * kernel]`.
pub(super) fn conv2d(
    x: &Tensor,
    weight: &Matrix,
    bias: Option<&Tensor>,
    geometry: Conv2d,
    products: Products,
) -> Result<Tensor> {
    let (channels, height, width) = tensor::dims3(x, "conv2d")?;
    let Conv2d { kernel, stride, upsample, .. } = geometry;
    if channels * kernel * kernel != weight.columns() || kernel == 0 || stride == 0 || upsample == 0 {
        return Err(Error::shape(
            "conv2d",
            format!("{geometry:?} of {:?} with a weight of {}x{}", x.dims(), weight.rows(), weight.columns()),
        ));
    }
    if let Some(bias) = bias {
        tensor::expect_shape(bias, &[weight.rows()], "conv2d", "the bias")?;
    }
    let [top, bottom, left, right] = geometry.padding;
    if (height * geometry.upsample + top + bottom).min(width * geometry.upsample + left + right) < geometry.kernel {
        return Err(Error::shape("conv2d", format!("{geometry:?} of {:?}: the kernel is the larger", x.dims())));
    }
    let bias = bias.map(tensor::view).transpose()?;
    let values = tensor::view(x)?;
    let patches = Patches::new(&values, [channels, height, width], geometry);
    let (rows, columns) = geometry.output(height, width);
    let out = gemm::product(Processor::best(products), weight, &patches, bias.as_deref(), Layout::Rows);
    tensor::from_vec(out, &[weight.rows(), rows, columns])
}

/// The patch of every output pixel: `c * kernel * kernel` deep, in (channel, row, column) order.
pub(super) struct Patches<'a> {
    values: &'a [f32],
    height: usize,
    width: usize,
    geometry: Conv2d,
    rows: usize,
    columns: usize,
}

impl<'a> Patches<'a> {
    pub(super) fn new(values: &'a [f32], [channels, height, width]: [usize; 3], mut geometry: Conv2d) -> Self {
        let (mut rows, mut columns) = geometry.output(height, width);
        let (mut height, mut width) = (height, width);
        debug_assert_eq!(values.len(), channels * height * width);
        if geometry == Conv2d::same(1) {
            // Without neighbours the picture is one long row.
            (height, width) = (1, height * width);
            (rows, columns) = (1, width);
            geometry.padding = [0; 4];
        }
        Self { values, height, width, geometry, rows, columns }
    }
}

/// Neighbouring output pixels of one row that share a panel: `at .. at + length` of it.
#[derive(Clone, Copy)]
struct Run {
    row: usize,
    column: usize,
    at: usize,
    length: usize,
}

impl Patches<'_> {
    /// Input row or column that output `i` reads with kernel offset `k`, if not in the padding.
    #[inline(always)]
    fn source(&self, i: usize, k: usize, padding: usize, size: usize) -> Option<usize> {
        let at = (i * self.geometry.stride + k).checked_sub(padding)? / self.geometry.upsample;
        (at < size).then_some(at)
    }

    /// The pixels of a panel that begins with pixel `first`, from its column `at` on.
    #[inline(always)]
    fn run(&self, first: usize, at: usize, panel: usize) -> Option<Run> {
        if at == panel || first + at >= self.rows * self.columns {
            return None;
        }
        let (row, column) = ((first + at) / self.columns, (first + at) % self.columns);
        Some(Run { row, column, at, length: (panel - at).min(self.columns - column) })
    }

    /// Gathers a panel `[depth, width of the panel]` of `f32`, which holds zeros at first.
    #[inline(always)]
    fn gather<const WIDTH: usize>(&self, depth: &Range<usize>, run: Run, panel: &mut [[f32; WIDTH]]) {
        let k = self.geometry.kernel;
        let padding = self.geometry.padding;
        let plane = self.height * self.width;
        let direct = self.geometry.stride == 1 && self.geometry.upsample == 1;
        for offset in 0..k * k {
            let Some(y) = self.source(run.row, offset / k, padding[0], self.height) else { continue };
            // Every k * k-th entry of the depth has this offset; the first one belongs to the channel:
            let channel = depth.start.saturating_sub(offset).div_ceil(k * k);
            let Some(skip) = (channel * k * k + offset).checked_sub(depth.start) else { continue };
            let mut sources = [usize::MAX; WIDTH];
            for (i, source) in sources[..run.length].iter_mut().enumerate() {
                if let Some(x) = self.source(run.column + i, offset % k, padding[2], self.width) {
                    *source = x;
                }
            }
            let Some(valid) = sources.iter().position(|s| *s != usize::MAX) else { continue };
            let end = sources.iter().rposition(|s| *s != usize::MAX).map_or(valid, |last| last + 1);
            let planes = self.values[channel.min(self.values.len() / plane) * plane..].chunks_exact(plane);
            for (entry, plane) in panel.iter_mut().skip(skip).step_by(k * k).zip(planes) {
                let row = &plane[y * self.width..][..self.width];
                if !direct {
                    for (value, source) in entry[run.at..][valid..end].iter_mut().zip(&sources[valid..end]) {
                        *value = row[*source];
                    }
                } else if end - valid == WIDTH {
                    entry.copy_from_slice(&row[sources[0]..][..WIDTH]);
                } else {
                    entry[run.at..][valid..end].copy_from_slice(&row[sources[valid]..][..end - valid]);
                }
            }
        }
    }

    #[inline(always)]
    fn gather_all<const WIDTH: usize>(&self, depth: &Range<usize>, first: usize, panel: &mut [[f32; WIDTH]]) {
        panel.fill([0.0; WIDTH]);
        let mut at = 0;
        while let Some(run) = self.run(first, at, WIDTH) {
            self.gather(depth, run, panel);
            at += run.length;
        }
    }

    #[inline(always)]
    fn pack_panel<K: Kernel, const WIDTH: usize>(&self, depth: &Range<usize>, first: usize, panel: &mut [f32]) {
        let panel = panel.as_chunks_mut::<WIDTH>().0;
        if K::PAIRS {
            let length = depth.len().next_multiple_of(2);
            let mut buffer = gemm::buffer(length * WIDTH);
            let values = &mut buffer.as_chunks_mut::<WIDTH>().0[..length];
            self.gather_all(depth, first, values);
            for ([even, odd], units) in values.as_chunks::<2>().0.iter().zip(panel) {
                for i in 0..WIDTH {
                    units[i] = gemm::pair(even[i], odd[i]);
                }
            }
            gemm::put_back(buffer);
        } else {
            self.gather_all(depth, first, panel);
            if K::ROUND {
                for value in panel.as_flattened_mut() {
                    *value = gemm::round(*value);
                }
            }
        }
    }
}

impl Columns for Patches<'_> {
    fn count(&self) -> usize {
        self.rows * self.columns
    }

    #[inline(always)]
    fn pack<K: Kernel>(&self, _: K, depth: Range<usize>, first: usize, panel: &mut [f32]) {
        if K::COLUMNS == 32 {
            self.pack_panel::<K, 32>(&depth, first, panel);
        } else {
            self.pack_panel::<K, 16>(&depth, first, panel);
        }
    }
}
