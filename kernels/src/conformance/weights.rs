//! Random weights in every stored form.

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};

use super::array::{Array, Random};
use crate::{Format, Matrix, Result};

/// Every form, with a row length that it can hold.
pub(super) const FORMATS: [(Format, usize); 6] = [
    (Format::F32, 33),
    (Format::F16, 65),
    (Format::Bf16, 7),
    (Format::Q8_0, 96),
    (Format::Q4K, 512),
    (Format::Q6K, 256),
];

/// A random matrix of `rows` by `columns` and the values that it stands for.
pub(super) fn random(random: &mut Random, format: Format, rows: usize, columns: usize) -> Result<(Matrix, Array)> {
    let values = random.array(&[rows, columns]);
    let stored = match format {
        Format::F32 => GgmlDType::F32,
        Format::F16 => GgmlDType::F16,
        Format::Bf16 => GgmlDType::BF16,
        Format::Q8_0 => GgmlDType::Q8_0,
        Format::Q4K => GgmlDType::Q4K,
        Format::Q6K => GgmlDType::Q6K,
    };
    let tensor = Tensor::from_vec(values.single(), (rows, columns), &Device::Cpu)?;
    let quantised = QTensor::quantize(&tensor, stored)?;
    let matrix = Matrix::new(format, rows, columns, quantised.data()?.into_owned().into())?;
    let kept = quantised.dequantize(&Device::Cpu)?.flatten_all()?.to_vec1::<f32>()?;
    Ok((matrix, Array::build(&[rows, columns], |i| f64::from(kept[i]))))
}
