// Package soak reads metrics, and says whether a long-lived process grows: it compares what the
// process takes during the last rests of a run with that during the first ones. A leak raises this
// floor.
//
// make soak runs TestSoak of package faults, which has everything that asks, writes, breaks and
// compares. This package only measures.
package soak
