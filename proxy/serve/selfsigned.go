package serve

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	certFile = "tls.crt"
	keyFile  = "tls.key"

	// selfSignedLifetime is the lifetime of a self-signed certificate. It is long, since clients keep a copy of the
	// certificate.
	selfSignedLifetime = 10 * 365 * 24 * time.Hour
	// renewBefore is the shortest time to expiry for which SelfSigned keeps a certificate: 30 days. Otherwise it makes a new
	// one, with a new key.
	renewBefore = 30 * 24 * time.Hour
)

// fixedHosts are the hosts of every certificate. The last one is the API server in the kubeconfigs of pods.
var fixedHosts = []string{"localhost", "127.0.0.1", "::1", "kubernetes.default.svc"}

// SelfSigned returns the files of a pair, a serving certificate and its key: tls.crt and tls.key (0600) in dir. The certificate
// is for hosts (DNS names or IP addresses), fixedHosts, the name "listproxy", and the machine's name. Clients accept the
// certificate if they trust tls.crt.
//
// A pair in dir is used again if it is valid for another 30 days, and covers hosts and fixedHosts. (It need not cover the
// machine's name, which changes from pod to pod.) Otherwise SelfSigned makes a new pair, which overwrites the files in dir.
// Clients must be told to trust it.
//
// SelfSigned is for trying listproxy out, since several replicas need the same pair. Only one process may use dir at a time.
func SelfSigned(dir string, hosts []string) (certPath, keyPath string, err error) {
	hosts = slices.Concat(fixedHosts, hosts)
	certPath, keyPath = filepath.Join(dir, certFile), filepath.Join(dir, keyFile)
	pair, err := tls.LoadX509KeyPair(certPath, keyPath)
	if errors.Is(err, fs.ErrPermission) {
		return "", "", fmt.Errorf("the self-signed certificate: %w: let this user read it, or take another directory", err)
	}
	if err == nil && isUsable(pair.Leaf, hosts, time.Now()) {
		return certPath, keyPath, nil
	}
	if name, _ := os.Hostname(); len(validation.IsDNS1123Subdomain(strings.ToLower(name))) == 0 {
		hosts = append(hosts, name)
	}
	certPEM, keyPEM, err := makePair(hosts)
	if err == nil {
		err = errors.Join(cert.WriteCert(certPath, certPEM), keyutil.WriteKey(keyPath, keyPEM))
	}
	if err != nil {
		return "", "", fmt.Errorf("making a self-signed certificate: %w", err)
	}
	return certPath, keyPath, nil
}

// isUsable reports whether an existing certificate covers hosts and is valid for long enough.
func isUsable(leaf *x509.Certificate, hosts []string, now time.Time) bool {
	lacks := func(host string) bool { return leaf.VerifyHostname(host) != nil }
	return now.Add(renewBefore).Before(leaf.NotAfter) && !slices.ContainsFunc(hosts, lacks)
}

// makePair makes a CA, and a certificate for hosts and listproxy that the CA signs. certPEM has the certificate, and after it
// the CA's. keyPEM has the certificate's key. The CA's key is thrown away.
func makePair(hosts []string) (certPEM, keyPEM []byte, err error) {
	options := cert.SelfSignedCertKeyOptions{Host: "listproxy", MaxAge: selfSignedLifetime}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			options.AlternateIPs = append(options.AlternateIPs, ip)
		} else {
			options.AlternateDNS = append(options.AlternateDNS, host)
		}
	}
	return cert.GenerateSelfSignedCertKeyWithOptions(options)
}

// DefaultDir returns the directory for the self-signed certificate if a person starts listproxy: a folder in the user's
// cache. It returns "" if the user has no home, as in a container, since a directory that others can write to is no place
// for a key.
func DefaultDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "listproxy")
}

// TrustFile returns the file in dir that clients must trust.
func TrustFile(dir string) string { return filepath.Join(dir, certFile) }
