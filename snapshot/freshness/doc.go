// Package freshness decides when a feed asks the upstream how far it is. It is a state machine that
// reads no clock and does nothing by itself: a feed tells it what has happened, and does what it
// says. The tests go through random sequences of what can happen, against the rules at [Machine].
package freshness
