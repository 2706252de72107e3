package certs

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// ClientCA is a file with the CAs of client certificates. While Run runs, the file is read again
// when it changes. Content that cannot be used is logged, and the previous content stays in use. It
// is safe for concurrent use.
type ClientCA struct {
	name    string // of the flag, without what all have
	content *dynamiccertificates.DynamicFileCAContent
}

// LoadClientCA reads the file at path. Flag is the command line's name for it, for errors and
// the log.
func LoadClientCA(flag, path string) (*ClientCA, error) {
	content, err := dynamiccertificates.NewDynamicCAContentFromFile(flag, path)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: give a file with CA certificates, PEM", flag, path, err)
	}
	return &ClientCA{name: strings.TrimSuffix(strings.TrimPrefix(flag, "--"), "-file"), content: content}, nil
}

// VerifyOptions has the type of that name: certificates must be for client authentication.
func (c *ClientCA) VerifyOptions() (x509.VerifyOptions, bool) { return c.content.VerifyOptions() }

// Run follows the file until ctx ends.
func (c *ClientCA) Run(ctx context.Context) { c.content.Run(ctx, 1) }

// ClientCAs returns a function that names all CAs of several files, as they are now, to clients
// who have to choose among their certificates. It does not verify anything. The function is safe
// for concurrent use. Without any CA it is nil: then clients are not asked for a certificate.
func ClientCAs(cas ...*ClientCA) func() *x509.CertPool {
	if len(cas) == 0 {
		return nil
	}
	var mu sync.Mutex
	var known [][]byte
	var pool *x509.CertPool
	return func() *x509.CertPool {
		mu.Lock()
		defer mu.Unlock()
		now := make([][]byte, len(cas))
		for i, ca := range cas {
			now[i] = ca.content.CurrentCABundleContent()
		}
		if !slices.EqualFunc(known, now, slices.Equal) {
			known, pool = now, x509.NewCertPool()
			for _, pem := range now {
				pool.AppendCertsFromPEM(pem)
			}
		}
		return pool
	}
}
