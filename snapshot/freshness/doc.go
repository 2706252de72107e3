// Package freshness decides when a feed asks the upstream for its current revision. It is a state
// machine that reads no clock and does nothing by itself: a feed tells the machine what has
// happened, and does what the machine says. The tests check the rules of [Machine] on random
// sequences of events.
package freshness
