// Package docs makes the reference in docs/policy.md of package policy: which fields there are and what
// they take is what its parser says about wrong ones, what they mean is what its types' comments say, and the
// defaults are those of its DefaultConfig. Its test holds the page to that, and writes it with -update.
package docs
