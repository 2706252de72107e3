package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"
)

const (
	// filesEvery is how often files that somebody else writes are read again. They are small, and
	// reading them notices every way of replacing them: the kubelet's symlinks, cert-manager, an
	// editor.
	filesEvery = 5 * time.Second
	// madeEvery is how often a certificate made here is checked. It is renewed a month before its end,
	// so it does not matter if the machine slept for some hours.
	madeEvery = time.Hour
	// tunnelLifetime is that of the certificate for the API server's names, which is never stored.
	tunnelLifetime = 90 * 24 * time.Hour
)

// A Certificate is the certificate that clients are shown. It can change while it is in use; open
// connections keep the one that they were shown. It is safe for concurrent use.
//
// Client CAs are followed by k8s.io/apiserver's dynamiccertificates ([ClientCA]). It is not used
// here because it follows files only. A serving pair may also be made and renewed here, and the
// pair for tunnels is signed by a CA that may change. One ticker serves all of these. Using the
// library for the files would mean two mechanisms.
type Certificate struct {
	purpose string
	every   time.Duration
	// next returns the pair to use from now on. It may return a pair together with an error: the best
	// that there is.
	next    func(now time.Time) (*tls.Certificate, error)
	current atomic.Pointer[tls.Certificate]
	log     *slog.Logger
}

// newCertificate gets the first pair, whose error is the caller's.
func newCertificate(
	purpose string, every time.Duration, next func(time.Time) (*tls.Certificate, error), log *slog.Logger,
) (*Certificate, error) {
	pair, err := next(time.Now())
	if err != nil {
		return nil, err
	}
	c := &Certificate{purpose: purpose, every: every, next: next, log: log}
	c.current.Store(pair)
	return c, nil
}

// Get is a [tls.Config.GetCertificate].
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.current.Load(), nil
}

// Run looks for a new certificate until ctx ends. One that cannot be used is logged once, with the
// names of its files, and changes nothing. Only one Run may run at a time.
func (c *Certificate) Run(ctx context.Context) {
	ticker := time.NewTicker(c.every)
	defer ticker.Stop()
	said := ""
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			pair, err := c.next(now)
			if pair != nil && !bytes.Equal(pair.Certificate[0], c.current.Load().Certificate[0]) {
				c.current.Store(pair)
				c.log.Info("a new certificate is in use", "purpose", c.purpose, "until", pair.Leaf.NotAfter.UTC())
			}
			switch {
			case err == nil:
				said = ""
			case err.Error() != said:
				said = err.Error()
				c.log.Warn("a new certificate cannot be used: the one before stays", "purpose", c.purpose, "error", err)
			}
		}
	}
}

// ServingFromFiles returns the certificate for listproxy's own names from files, PEM, that may be
// replaced at any time. Two files cannot be replaced at once: as long as they do not belong
// together, the pair before stays in use.
func ServingFromFiles(certPath, keyPath string, log *slog.Logger) (*Certificate, error) {
	return newCertificate("serving", filesEvery, func(time.Time) (*tls.Certificate, error) {
		pair, err := loadPair(certPath, keyPath)
		if err != nil {
			return nil, err
		}
		return &pair, nil
	}, log)
}

// ServingFromDir returns the certificate for listproxy's own names that [loadOrCreate]
// keeps in dir, renewed in time, and the path of its CA.
func ServingFromDir(dir string, hosts []string, log *slog.Logger) (c *Certificate, caPath string, err error) {
	c, err = newCertificate("serving", madeEvery, func(now time.Time) (*tls.Certificate, error) {
		pair, _, err := loadOrCreate(dir, hosts, now)
		if err != nil {
			return nil, err
		}
		return &pair, nil
	}, log)
	return c, filepath.Join(dir, caFile), err
}

// TunnelFromDir returns the certificate for the API server's names, signed by the CA that
// [loadOrCreateAuthority] keeps in dir. It is made anew in time and never stored.
func TunnelFromDir(dir string, hosts []string, log *slog.Logger) (*Certificate, error) {
	return tunnelCertificate(madeEvery, hosts, log, func(now time.Time) (*Authority, error) {
		return loadOrCreateAuthority(dir, now)
	})
}

// TunnelFromFiles is [TunnelFromDir] with a CA that somebody gives ([loadAuthority]), in files
// that may be replaced at any time.
func TunnelFromFiles(certPath, keyPath string, hosts []string, log *slog.Logger) (*Certificate, error) {
	return tunnelCertificate(filesEvery, hosts, log, func(now time.Time) (*Authority, error) {
		return loadAuthority(certPath, keyPath, now)
	})
}

// tunnelCertificate signs with the CA that load returns, or with the last one that it returned.
func tunnelCertificate(
	every time.Duration, hosts []string, log *slog.Logger, load func(time.Time) (*Authority, error),
) (*Certificate, error) {
	var ca *Authority
	var pair *tls.Certificate
	return newCertificate("tunnel", every, func(now time.Time) (*tls.Certificate, error) {
		loaded, err := load(now)
		changed := loaded != nil && (ca == nil || !bytes.Equal(loaded.pem, ca.pem))
		if changed || ca != nil && due(pair, now) {
			signer := ca
			if changed {
				signer = loaded
			}
			issued, issueErr := signer.issue(hosts, tunnelLifetime, now)
			if issueErr != nil {
				return pair, issueErr
			}
			ca, pair = signer, issued
		}
		return pair, err
	}, log)
}

// due says whether a pair is in the last third of its lifetime. So even if the CA allows only a
// short lifetime, a pair is not made again all the time.
func due(pair *tls.Certificate, now time.Time) bool {
	life := pair.Leaf.NotAfter.Sub(pair.Leaf.NotBefore)
	return now.After(pair.Leaf.NotAfter.Add(-life / 3))
}
