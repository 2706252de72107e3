package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/proxy/internal/proxytest"
	"github.com/listproxy/listproxy/test/expect"
)

var certificateTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func mustCreate(t *testing.T, dir string, hosts []string, now time.Time) (tls.Certificate, string) {
	t.Helper()
	pair, ca, err := loadOrCreate(dir, hosts, now)
	expect.NoError(t, err)
	return pair, ca
}

func verify(t *testing.T, pair tls.Certificate, caPath, host string, at time.Time) error {
	t.Helper()
	caPEM, err := os.ReadFile(caPath)
	expect.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(caPEM)
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: at, DNSName: host})
	return err
}

func TestCreatedCertificate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	pair, ca := mustCreate(t, dir, []string{"proxy.example", "10.1.2.3", "localhost"}, certificateTime)
	if want := filepath.Join(dir, "ca.crt"); ca != want {
		t.Errorf("CA in %s, want %s", ca, want)
	}
	hosts := []string{"localhost", "127.0.0.1", "::1", "proxy.example", "10.1.2.3"}
	if name, err := os.Hostname(); err == nil && validHost(name) {
		hosts = append(hosts, name)
	}
	for _, host := range hosts {
		if net.ParseIP(host) != nil {
			host = "[" + host + "]" // how crypto/x509 wants addresses
		}
		if err := verify(t, pair, ca, host, certificateTime.Add(364*24*time.Hour)); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	if verify(t, pair, ca, "other.example", certificateTime) == nil {
		t.Error("the certificate covers another host")
	}
	if key, ok := pair.PrivateKey.(*ecdsa.PrivateKey); !ok || key.Curve != elliptic.P256() {
		t.Errorf("the key is a %T, want ECDSA on P-256", pair.PrivateKey)
	}

	got := map[string]os.FileMode{}
	entries, err := os.ReadDir(dir)
	expect.NoError(t, err)
	for _, entry := range entries {
		info, err := entry.Info()
		expect.NoError(t, err)
		got[entry.Name()] = info.Mode()
	}
	want := map[string]os.FileMode{".lock": 0o600, "ca.crt": 0o644, "ca.key": 0o600, "tls.crt": 0o600, "tls.key": 0o600}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestCertificateIsUsedAgain(t *testing.T) {
	const day = 24 * time.Hour
	tests := map[string]struct {
		hosts  []string
		after  time.Duration
		change func(t *testing.T, dir string)
		again  bool
	}{
		"next start":     {hosts: []string{"a.example"}, again: true},
		"fewer hosts":    {again: true},
		"after months":   {after: 330 * day, again: true},
		"a month left":   {after: 336 * day},
		"expired":        {after: 400 * day},
		"clock set back": {after: -2 * day},
		"another host":   {hosts: []string{"b.example"}},
		"another CA": {change: func(t *testing.T, dir string) {
			_, ca := mustCreate(t, t.TempDir(), nil, certificateTime)
			proxytest.CopyFile(t, ca, filepath.Join(dir, "ca.crt"))
		}},
		"key of another": {change: func(t *testing.T, dir string) {
			other := t.TempDir()
			mustCreate(t, other, nil, certificateTime)
			proxytest.CopyFile(t, filepath.Join(other, "tls.key"), filepath.Join(dir, "tls.key"))
		}},
		"no CA":  {change: func(t *testing.T, dir string) { proxytest.Remove(t, filepath.Join(dir, "ca.crt")) }},
		"no key": {change: func(t *testing.T, dir string) { proxytest.Remove(t, filepath.Join(dir, "tls.key")) }},
		"garbage": {change: func(t *testing.T, dir string) {
			expect.NoError(t, os.WriteFile(filepath.Join(dir, "tls.crt"), []byte("garbage"), 0o600))
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			first, _ := mustCreate(t, dir, []string{"a.example"}, certificateTime)
			if test.change != nil {
				test.change(t, dir)
			}
			now := certificateTime.Add(test.after)
			second, ca := mustCreate(t, dir, test.hosts, now)
			if again := bytes.Equal(first.Certificate[0], second.Certificate[0]); again != test.again {
				t.Errorf("used again: %t, want %t", again, test.again)
			}
			if err := verify(t, second, ca, "localhost", now); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestGivenCertificate(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	made, _ := mustCreate(t, dir, nil, certificateTime)
	mustCreate(t, other, nil, certificateTime)
	certificate, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")

	pair, err := loadPair(certificate, key)
	if err != nil || !bytes.Equal(pair.Certificate[0], made.Certificate[0]) {
		t.Errorf("loadPair: %v", err)
	}

	unwritable := filepath.Join(dir, "tls.crt", "folder")
	tests := map[string]struct {
		certificate, key, dir string
		hosts                 []string
		want                  []string // in the error
	}{
		"no such certificate": {certificate: "/no/such.crt", key: key, want: []string{"/no/such.crt"}},
		"no such key":         {certificate: certificate, key: "/no/such.key", want: []string{"/no/such.key"}},
		"key of another":      {certificate: certificate, key: filepath.Join(other, "tls.key"), want: []string{certificate, other, "match"}},
		"no certificate":      {certificate: key, key: key, want: []string{key}},
		"nothing":             {want: []string{"directory"}},
		"no folder":           {dir: unwritable, want: []string{"tls.crt"}},
		"a host with a port":  {dir: dir, hosts: []string{"a:443"}, want: []string{`"a:443"`}},
		"an empty host":       {dir: dir, hosts: []string{""}, want: []string{`""`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, _, err := loadOrCreate(test.dir, test.hosts, certificateTime)
			if test.certificate != "" {
				_, err = loadPair(test.certificate, test.key)
			}
			if err == nil {
				t.Fatal("no error")
			}
			for _, text := range test.want {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q is missing in: %v", text, err)
				}
			}
			proxytest.AssertNotContains(t, err.Error(), "PRIVATE KEY")
		})
	}
}
