package certs

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/proxy/internal/proxytest"
	"github.com/listproxy/listproxy/test/expect"
)

// makeCA makes the two files of a CA as somebody might bring it, and returns their paths.
func makeCA(t *testing.T, dir string, change func(*x509.Certificate)) (certPath, keyPath string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	expect.NoError(t, err)
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "theirs"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(365 * 24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	expect.NoError(t, err)
	certPEM, keyPEM, err := encodePair([][]byte{der}, key)
	expect.NoError(t, err)
	certPath, keyPath = filepath.Join(dir, "their.crt"), filepath.Join(dir, "their.key")
	for path, data := range map[string][]byte{certPath: certPEM, keyPath: keyPEM} {
		expect.NoError(t, os.WriteFile(path, data, 0o600))
	}
	return certPath, keyPath
}

func TestGivenAuthority(t *testing.T) {
	targets := []string{"api.example", "10.0.0.1"}
	for _, tt := range []struct {
		name   string
		change func(*x509.Certificate)
		says   string
	}{
		{"good", nil, ""},
		{"no CA", func(c *x509.Certificate) { c.IsCA, c.KeyUsage = false, x509.KeyUsageDigitalSignature }, "not a CA"},
		{"may not sign", func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCRLSign }, "not a CA"},
		{"expired", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }, "expired"},
		{"not yet", func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) }, "not valid before"},
		{"for other names", func(c *x509.Certificate) { c.PermittedDNSDomains = []string{"other.example"} }, "api.example"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			certPath, keyPath := makeCA(t, t.TempDir(), tt.change)
			c, err := TunnelFromFiles(certPath, keyPath, targets, proxytest.DiscardLog())
			if tt.says != "" {
				if err == nil || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("got %v, want an error that says %q", err, tt.says)
				}
				return
			}
			expect.NoError(t, err)
			pair, _ := c.Get(nil)
			if err := verify(t, *pair, certPath, "api.example", time.Now()); err != nil {
				t.Error(err)
			}
			for _, host := range []string{"api.example", "10.0.0.1"} {
				if err := pair.Leaf.VerifyHostname(host); err != nil {
					t.Error(err)
				}
			}
			if life := time.Until(pair.Leaf.NotAfter).Round(time.Hour); life != tunnelLifetime {
				t.Errorf("the certificate is valid for %v, want %v", life, tunnelLifetime)
			}
		})
	}
	here, there := t.TempDir(), t.TempDir()
	certPath, keyPath := makeCA(t, here, nil)
	_, otherKey := makeCA(t, there, nil)
	for _, files := range [][2]string{{certPath, otherKey}, {filepath.Join(here, "none"), keyPath}, {certPath, filepath.Join(here, "none")}, {keyPath, keyPath}} {
		_, err := TunnelFromFiles(files[0], files[1], targets, proxytest.DiscardLog())
		if err == nil || !strings.Contains(err.Error(), files[0]) && !strings.Contains(err.Error(), files[1]) {
			t.Errorf("%v: %v", files, err)
			continue
		}
		proxytest.AssertNotContains(t, err.Error(), "PRIVATE KEY")
	}
}

// TestFilesAreReadAgain: a certificate follows its files, and what is broken changes nothing and
// is said once.
func TestFilesAreReadAgain(t *testing.T) {
	dir, next := t.TempDir(), t.TempDir()
	certPath, keyPath := makeCA(t, dir, nil)
	nextCert, nextKey := makeCA(t, next, nil)
	synctest.Test(t, func(t *testing.T) {
		records := &proxytest.Recorder{}
		serving, err := ServingFromFiles(certPath, keyPath, slog.New(records))
		expect.NoError(t, err)
		first, _ := serving.Get(nil)
		var running sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		running.Go(func() { serving.Run(ctx) })
		look := func() *tls.Certificate {
			time.Sleep(2 * filesEvery) // of the bubble's time
			synctest.Wait()
			pair, _ := serving.Get(nil)
			return pair
		}
		if look() != first {
			t.Error("a new certificate from the same files")
		}
		proxytest.CopyFile(t, nextCert, certPath) // and not yet its key
		if look() != first {
			t.Error("half of a new pair is used")
		}
		warnings := records.Above(slog.LevelInfo)
		if len(warnings) != 1 || !strings.Contains(warnings[0], certPath) || !strings.Contains(warnings[0], keyPath) {
			t.Errorf("the warnings are %q, want one that names the files", warnings)
		}
		proxytest.CopyFile(t, nextKey, keyPath)
		second := look()
		if bytes.Equal(second.Certificate[0], first.Certificate[0]) {
			t.Error("the new pair is not used")
		}
		proxytest.Remove(t, certPath)
		if look() != second {
			t.Error("the pair went with its file")
		}
		stop()
		running.Wait()
	})
}

// TestTunnelCertificateIsMadeAnew: in time, when the CA changes, and with the CA before while a
// new one cannot be used.
func TestTunnelCertificateIsMadeAnew(t *testing.T) {
	targets := []string{"api.example"}
	dir := t.TempDir()
	now := proxytest.WallClock()
	var failing error
	c, err := tunnelCertificate(filesEvery, targets, proxytest.DiscardLog(), func(time.Time) (*Authority, error) {
		if failing != nil {
			return nil, failing
		}
		return loadOrCreateAuthority(dir, now)
	})
	expect.NoError(t, err)
	step := func(after time.Duration) *tls.Certificate {
		now = now.Add(after)
		pair, err := c.next(now)
		if !errors.Is(err, failing) {
			t.Fatalf("got %v, want %v", err, failing)
		}
		return pair
	}
	const day = 24 * time.Hour
	first := step(0)
	if step(50*day) != first {
		t.Error("made anew after 50 days")
	}
	second := step(15 * day)
	if second == first || !second.Leaf.NotAfter.Equal(now.Add(tunnelLifetime).Truncate(time.Second)) {
		t.Errorf("not made anew after 65 days: until %v", second.Leaf.NotAfter)
	}
	proxytest.Remove(t, filepath.Join(dir, caKeyFile))
	third := step(day) // has another CA
	if bytes.Equal(third.Leaf.AuthorityKeyId, second.Leaf.AuthorityKeyId) {
		t.Error("the new CA did not sign")
	}
	failing = errors.New("broken")
	if step(day) != third {
		t.Error("changed by a CA that cannot be used")
	}
	if fourth := step(70 * day); fourth == third || !bytes.Equal(fourth.Leaf.AuthorityKeyId, third.Leaf.AuthorityKeyId) {
		t.Error("not made anew with the CA before")
	}
}

// TestMadePairIsRenewed while it is in use, by the same CA.
func TestMadePairIsRenewed(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c, caPath, err := ServingFromDir(dir, nil, proxytest.DiscardLog())
		expect.NoError(t, err)
		c.every = 24 * time.Hour // instead of thousands of looks
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { c.Run(ctx) })
		first, _ := c.Get(nil)
		time.Sleep(certificateLifetime - renewBefore - 2*c.every)
		if pair, _ := c.Get(nil); pair != first {
			t.Error("renewed too early")
		}
		time.Sleep(4 * c.every)
		second, _ := c.Get(nil)
		if second == first {
			t.Error("not renewed in time")
		}
		if err := verify(t, *second, caPath, "localhost", time.Now().Add(300*24*time.Hour)); err != nil {
			t.Error(err)
		}
		if !bytes.Equal(first.Leaf.AuthorityKeyId, second.Leaf.AuthorityKeyId) {
			t.Error("the CA changed")
		}
		stop()
		running.Wait()
	})
}

// TestManyShareADirectory: however many begin at once, they have one CA and one pair.
func TestManyShareADirectory(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	pairs := make([]tls.Certificate, 8)
	errs := make([]error, len(pairs))
	for i := range pairs {
		all.Go(func() { pairs[i], _, errs[i] = loadOrCreate(dir, nil, proxytest.WallClock()) })
	}
	all.Wait()
	expect.NoError(t, errors.Join(errs...))
	for _, pair := range pairs {
		if !bytes.Equal(pair.Certificate[0], pairs[0].Certificate[0]) {
			t.Error("the pairs differ")
		}
	}
}

func TestKeyReadableByOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if KeyReadableByOthers(path) {
		t.Error("a file that is not there is readable")
	}
	expect.NoError(t, os.WriteFile(path, nil, 0o600))
	for mode, want := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o400: false, 0o644: true, 0o604: true} {
		expect.NoError(t, os.Chmod(path, mode))
		if got := KeyReadableByOthers(path); got != want {
			t.Errorf("%v: %t", mode, got)
		}
	}
}
