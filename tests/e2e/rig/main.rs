//! Tests of the test cluster itself: it supports what the tests of this project need.

mod api;
mod chaos;
mod pods;
mod storage;
