package certs

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/expect"
)

// TestExpiries: of a chain and of a file with CAs, the first counts, and what is in use now.
func TestExpiries(t *testing.T) {
	now := time.Now()
	var cas []byte
	var pair *tls.Certificate
	end := func(in time.Duration) time.Time { return now.Add(in).Truncate(time.Second).UTC() }
	for range 2 {
		authority, err := loadOrCreateAuthority(t.TempDir(), now)
		expect.NoError(t, err)
		if pair, err = authority.issue([]string{"a"}, time.Hour, now); err != nil {
			t.Fatal(err)
		}
		cas = append(cas, authority.pem...)
	}
	path := filepath.Join(t.TempDir(), "ca.crt")
	expect.NoError(t, os.WriteFile(path, cas, 0o600))
	ca, err := LoadClientCA("--client-ca-file", path)
	expect.NoError(t, err)
	leaf := pair.Leaf.NotAfter
	if got := firstEnd([]*x509.Certificate{{NotAfter: leaf}, {NotAfter: leaf.Add(-time.Second)}, {NotAfter: leaf.Add(time.Second)}}); !got.Equal(leaf.Add(-time.Second)) {
		t.Errorf("the first end is %v", got)
	}
	serving, err := newCertificate("serving", time.Hour, func(time.Time) (*tls.Certificate, error) { return pair, nil }, slog.New(slog.DiscardHandler))
	expect.NoError(t, err)
	if got := serving.Expiry(); got.Name != "serving" || !got.NotAfter.Equal(leaf) || got.NotAfter.After(end(2*time.Hour)) {
		t.Errorf("serving: %+v, want %v", got, leaf)
	}
	if got := ca.Expiry(); got.Name != "client-ca" || got.NotAfter.Before(end(365*24*time.Hour)) {
		t.Errorf("CAs: %+v", got)
	}
}
