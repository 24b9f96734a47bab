//! The loop of [`fast`] twice: for every processor, and for those with BMI2 (x86-64 since 2013), where shifts by a
//! variable number of bits are single instructions. That makes it a sixteenth faster.
#![allow(unsafe_code)]

use super::codes::Codes;
use super::history::History;
use super::{Bits, Invalid, Now, fast};

/// As [`fast::run`].
pub(super) fn run(
    bits: &mut Bits,
    codes: &Codes,
    history: &History,
    now: &mut Now<'_>,
) -> Result<bool, Invalid> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("bmi1") && is_x86_feature_detected!("bmi2") {
        // SAFETY: all that the function asks for is that the processor has these features.
        return unsafe { with_bmi2(bits, codes, history, now) };
    }
    fast::run(bits, codes, history, now)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "bmi1,bmi2")]
fn with_bmi2(
    bits: &mut Bits,
    codes: &Codes,
    history: &History,
    now: &mut Now<'_>,
) -> Result<bool, Invalid> {
    fast::run(bits, codes, history, now)
}
