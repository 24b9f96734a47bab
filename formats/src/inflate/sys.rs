//! The loop of [`fast`] twice: for every processor, and for those with BMI2 (x86-64 since 2013), where shifts by a
//! variable number of bits are single instructions. That makes it a sixteenth faster.
#![allow(unsafe_code)]

use super::codes::Codes;
use super::history::History;
use super::output::OutputByte;
use super::{Bits, Invalid, Now, fast};

/// As [`fast::decode_symbols`].
pub(super) fn decode_symbols<B: OutputByte>(
    bits: &mut Bits,
    codes: &Codes,
    history: &History<B>,
    now: &mut Now<'_, B>,
) -> Result<bool, Invalid> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("bmi1") && is_x86_feature_detected!("bmi2") {
        // SAFETY: the function requires only that the processor has these features.
        return unsafe { with_bmi2(bits, codes, history, now) };
    }
    fast::decode_symbols(bits, codes, history, now)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "bmi1,bmi2")]
fn with_bmi2<B: OutputByte>(
    bits: &mut Bits,
    codes: &Codes,
    history: &History<B>,
    now: &mut Now<'_, B>,
) -> Result<bool, Invalid> {
    fast::decode_symbols(bits, codes, history, now)
}
