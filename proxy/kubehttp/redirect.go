package kubehttp

import "net/http"

// NoRedirect is for [http.Client.CheckRedirect] of clients whose credentials are for one server
// only: what would send them elsewhere is their answer.
func NoRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
