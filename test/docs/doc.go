// Package docs makes the reference in docs/policy.md from package policy. Which fields there are,
// and which values they take, it learns from what the parser says about wrong ones; what they mean,
// from the comments of the types; the defaults, from DefaultConfig. Its test checks that the page
// says this, and writes it with -update.
package docs
