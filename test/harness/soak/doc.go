// Package soak says whether a process that lives long grows: what it takes of the machine is read
// from its own metrics now and then, and what it comes down to in the last rests is held against
// what it came down to in the first: a leak raises the floor, whatever goes up and down above it.
//
// make soak runs TestSoak of package faults, where all that asks, writes, breaks and compares is:
// this package measures beside it.
package soak
