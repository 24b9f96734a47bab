//! Tests of the rig itself: that the cluster can do what tests of this project will ask of it.

mod api;
mod chaos;
mod pods;
mod storage;
