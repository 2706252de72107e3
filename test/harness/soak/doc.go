// Package soak says whether a process that lives long grows. It reads from the process's own
// metrics what the process uses, and compares the lowest use in the last rests with that in the
// first: a leak raises this floor, whatever goes up and down above it.
//
// make soak runs TestSoak of package faults, which has everything that asks, writes, breaks and
// compares. This package only measures.
package soak
