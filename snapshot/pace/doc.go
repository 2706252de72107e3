// Package pace measures how long the upstream takes: [Feed] measures how fast a feed learns the
// upstream's current revision, [Costs] how long a forwarded list takes. Together they say whether
// it pays to wait for a proof of the newest state.
package pace
