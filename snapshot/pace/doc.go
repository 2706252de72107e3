// Package pace measures how long the upstream takes: [Feed] is how fast a feed learns how far the
// upstream is, [Costs] what a list costs the upstream if it is forwarded. Together they say whether
// it is worth to wait for a proof of the newest state.
package pace
