// Package policyfile reads the file that --config names, refuses names that Kubernetes does not
// have, and shows its rules as words: it is listproxy policy check. What the rules mean for a
// request is in package policy.
package policyfile
