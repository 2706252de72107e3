package main

import (
	"github.com/listproxy/listproxy/proxy/certs"
)

// expiries says when the certificates end that clients are shown, and the CAs of theirs.
func (a *app) expiries() []certs.Expiry {
	all := []certs.Expiry{a.certificate.Expiry()}
	if a.connect != nil {
		all = append(all, a.connect.certificate.Expiry())
	}
	for _, ca := range a.clientCAs {
		all = append(all, ca.Expiry())
	}
	return all
}
