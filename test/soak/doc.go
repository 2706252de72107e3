// Package soak says whether a process that lives long grows: what it takes of the machine is read from
// its own metrics now and then, and the end is held against the middle.
//
// make soak runs TestSoak of package faults, where all that asks, writes, breaks and compares is: this
// package measures beside it.
package soak
