package serve

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// makeSelfSigned calls SelfSigned, and returns the pair and a pool with its certificate.
func makeSelfSigned(t *testing.T, dir string, hosts ...string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	certPath, keyPath, err := SelfSigned(dir, hosts)
	expect.NoError(t, err)
	pair, err := tls.LoadX509KeyPair(certPath, keyPath)
	expect.NoError(t, err)
	roots, err := cert.NewPool(certPath)
	expect.NoError(t, err)
	return pair, roots
}

// TestSelfSigned: SelfSigned makes a certificate for all names and addresses of the machine, and for the given hosts. It is
// valid for ten years (selfSignedLifetime). Only the owner may read the key.
func TestSelfSigned(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	pair, roots := makeSelfSigned(t, dir, "proxy.example", "10.1.2.3", "localhost")
	hosts := []string{"localhost", "127.0.0.1", "[::1]", "kubernetes.default.svc", "proxy.example", "10.1.2.3"}
	if name, err := os.Hostname(); err == nil && !strings.Contains(name, "_") {
		hosts = append(hosts, name)
	}
	verify := func(host string, after time.Duration) error {
		_, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: time.Now().Add(after), DNSName: host})
		return err
	}
	for _, host := range hosts {
		if err := verify(host, selfSignedLifetime-24*time.Hour); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	if verify("other.example", 0) == nil {
		t.Error("the certificate covers another host")
	}
	modes := map[string]os.FileMode{}
	entries, err := os.ReadDir(dir)
	expect.NoError(t, err)
	for _, entry := range entries {
		info, err := entry.Info()
		expect.NoError(t, err)
		modes[entry.Name()] = info.Mode()
	}
	expect.Same(t, map[string]os.FileMode{"tls.crt": 0o644, "tls.key": 0o600}, modes)
}

// TestSelfSignedIsUsedAgain: SelfSigned returns the pair that is in the folder if it can be read, covers all hosts, and is
// valid for another 30 days. If not, it makes a new one.
func TestSelfSignedIsUsedAgain(t *testing.T) {
	const day = 24 * time.Hour
	for name, tt := range map[string]struct {
		hosts         []string                                     // of the second call; the first is for a.example and fd00::a
		after         time.Duration                                // between the two calls
		change        func(t *testing.T, certPath, keyPath string) // of the files, between the two calls; nil: none
		wantUsedAgain bool
	}{
		"next start":             {hosts: []string{"a.example", "fd00::a", "127.0.0.1"}, wantUsedAgain: true},
		"fewer hosts":            {wantUsedAgain: true},
		"more than 30 days left": {after: selfSignedLifetime - renewBefore - day, wantUsedAgain: true},
		"less than 30 days left": {after: selfSignedLifetime - renewBefore + day},
		"another host":           {hosts: []string{"a.example", "b.example"}},
		"key of another pair":    {change: func(t *testing.T, _, keyPath string) { copyFile(t, newPair(t).KeyFile, keyPath) }},
		"no key":                 {change: func(t *testing.T, _, keyPath string) { expect.NoError(t, os.Remove(keyPath)) }},
		"an empty certificate":   {change: func(t *testing.T, certPath, _ string) { expect.NoError(t, os.Truncate(certPath, 0)) }},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			dir := t.TempDir()
			first, _ := makeSelfSigned(t, dir, "a.example", "fd00::a")
			time.Sleep(tt.after) // of the bubble's time, which SelfSigned reads, too
			if tt.change != nil {
				tt.change(t, filepath.Join(dir, certFile), filepath.Join(dir, keyFile))
			}
			second, _ := makeSelfSigned(t, dir, tt.hosts...)
			if got := bytes.Equal(first.Certificate[0], second.Certificate[0]); got != tt.wantUsedAgain {
				t.Errorf("the pair was used again: %t, want %t", got, tt.wantUsedAgain)
			}
		})
	}
}

// TestSelfSignedWithoutAFolder: the error of SelfSigned names the folder that it cannot make.
func TestSelfSignedWithoutAFolder(t *testing.T) {
	if _, _, err := SelfSigned("/dev/null/folder", nil); err == nil || !strings.Contains(err.Error(), "/dev/null") {
		t.Errorf("the error is %v, want one about /dev/null", err)
	}
}
