// Package soak says whether a long-lived process grows. It reads from the process's own metrics
// what the process uses, and compares the lowest use during the last rests of a run with that
// during the first: a leak raises this floor.
//
// make soak runs TestSoak of package faults, which has everything that asks, writes, breaks and
// compares. This package only measures.
package soak
