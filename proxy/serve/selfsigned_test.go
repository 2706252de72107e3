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

// made is the pair in dir, and the file that clients are to trust.
func made(t *testing.T, dir string, hosts ...string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	certPath, keyPath, err := SelfSigned(dir, hosts)
	expect.NoError(t, err)
	pair, err := tls.LoadX509KeyPair(certPath, keyPath)
	expect.NoError(t, err)
	roots, err := cert.NewPool(certPath)
	expect.NoError(t, err)
	return pair, roots
}

// TestSelfSigned: a certificate that is made is for all names and addresses of the machine and those that are given.
func TestSelfSigned(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	pair, roots := made(t, dir, "proxy.example", "10.1.2.3", "localhost")
	hosts := []string{"localhost", "127.0.0.1", "[::1]", "kubernetes.default.svc", "proxy.example", "10.1.2.3"}
	if name, err := os.Hostname(); err == nil && ValidName(name) {
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
	if pair.Leaf.PublicKeyAlgorithm != x509.ECDSA {
		t.Errorf("the key is %s: handshakes with it cost many times as much", pair.Leaf.PublicKeyAlgorithm)
	}
	if verify("other.example", 0) == nil {
		t.Error("the certificate covers another host")
	}
	got := map[string]os.FileMode{}
	entries, err := os.ReadDir(dir)
	expect.NoError(t, err)
	for _, entry := range entries {
		info, err := entry.Info()
		expect.NoError(t, err)
		got[entry.Name()] = info.Mode()
	}
	expect.Same(t, map[string]os.FileMode{"tls.crt": 0o644, "tls.key": 0o600}, got)
}

// TestSelfSignedIsUsedAgain, unless it cannot be: then another one is made.
func TestSelfSignedIsUsedAgain(t *testing.T) {
	const day = 24 * time.Hour
	for name, tt := range map[string]struct {
		hosts  []string // the second time
		after  time.Duration
		change func(t *testing.T, dir string)
		again  bool
	}{
		"next start":   {hosts: []string{"a.example", "fd00::a", "127.0.0.1"}, again: true},
		"fewer hosts":  {again: true},
		"after years":  {after: 3619 * day, again: true},
		"a month left": {after: 3621 * day},
		"another host": {hosts: []string{"a.example", "b.example"}},
		"key of another": {change: func(t *testing.T, dir string) {
			copyFile(t, newPair(t).KeyFile, filepath.Join(dir, "tls.key"))
		}},
		"no key": {change: func(t *testing.T, dir string) { expect.NoError(t, os.Remove(filepath.Join(dir, "tls.key"))) }},
		"garbage": {change: func(t *testing.T, dir string) {
			expect.NoError(t, os.WriteFile(filepath.Join(dir, "tls.crt"), []byte("garbage"), 0o600))
		}},
	} {
		proxytest.Bubble(t, name, func(t *testing.T) {
			dir := t.TempDir()
			first, _ := made(t, dir, "a.example", "fd00::a")
			time.Sleep(tt.after) // of the bubble's time
			if tt.change != nil {
				tt.change(t, dir)
			}
			second, _ := made(t, dir, tt.hosts...)
			if again := bytes.Equal(first.Certificate[0], second.Certificate[0]); again != tt.again {
				t.Errorf("used again: %t", again)
			}
		})
	}
}

// TestSelfSignedWithoutAFolder: the error names the folder that cannot be made.
func TestSelfSignedWithoutAFolder(t *testing.T) {
	if _, _, err := SelfSigned("/dev/null/folder", nil); err == nil || !strings.Contains(err.Error(), "/dev/null") {
		t.Errorf("the error is %v, want one about /dev/null", err)
	}
}
