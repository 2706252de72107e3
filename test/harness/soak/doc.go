// Package soak samples what a process uses, by its metrics, and reports whether the process grows: whether it uses more at
// the last rest of a run than at the first.
//
// make soak runs TestSoak of package faults, which makes the load and the faults, and decides when to rest.
package soak
