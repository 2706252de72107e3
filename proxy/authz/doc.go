// Package authz asks the API server, as the caller, what the caller may do and who the caller is,
// and remembers the answers for a short time.
package authz
