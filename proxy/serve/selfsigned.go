package serve

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	certFile = "tls.crt"
	keyFile  = "tls.key"

	// selfSignedLifetime is the lifetime of a self-signed certificate. It is as long as that of client-go's CAs, since
	// clients keep a copy of the certificate.
	selfSignedLifetime = 10 * 365 * 24 * time.Hour
	// renewBefore is the time for which an existing pair must still be valid to be used again.
	renewBefore = 30 * 24 * time.Hour
)

// fixedHosts are the hosts of every certificate. The last one is the API server in the kubeconfigs of pods.
var fixedHosts = []string{"localhost", "127.0.0.1", "::1", "kubernetes.default.svc"}

// SelfSigned returns the files of a serving certificate and its key: tls.crt and tls.key (0600) in dir. The certificate is
// for hosts (DNS names or IP addresses), fixedHosts, and the machine's name. Clients that trust the certificates in tls.crt
// accept it.
//
// A pair in dir is used again if it is valid for another 30 days, and covers all hosts except the machine's name, which
// changes from pod to pod. Otherwise a new pair, which clients do not know yet, replaces whatever is there.
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
	if name, err := os.Hostname(); err == nil && isValidName(name) {
		hosts = append(hosts, name)
	}
	certPEM, keyPEM, err := makePair(hosts, time.Now())
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

// makePair makes a CA, and signs a certificate for hosts with it. certPEM has the certificate and the CA, and keyPEM the
// certificate's key. The CA's key is thrown away. makePair is client-go's GenerateSelfSignedCertKey with ECDSA keys, which
// make a handshake fifteen times as fast.
func makePair(hosts []string, now time.Time) (certPEM, keyPEM []byte, err error) {
	caKey, caKeyErr := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	key, keyErr := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err := errors.Join(caKeyErr, keyErr); err != nil {
		return nil, nil, err
	}
	begin := now.Add(-time.Hour) // the clocks of clients differ
	caConfig := cert.Config{CommonName: fmt.Sprintf("listproxy-ca-%d", now.Unix()), NotBefore: begin}
	ca, err := cert.NewSelfSignedCACert(caConfig, caKey)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "listproxy"},
		NotBefore: begin, NotAfter: now.Add(selfSignedLifetime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, ca, key.Public(), caKey)
	if err != nil {
		return nil, nil, err
	}
	certPEM, certErr := cert.EncodeCertificates(&x509.Certificate{Raw: signed}, ca)
	keyPEM, keyErr = keyutil.MarshalPrivateKeyToPEM(key)
	return certPEM, keyPEM, errors.Join(certErr, keyErr)
}

// hostPattern is the form of names that crypto/x509 compares with a certificate's.
var hostPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]*(\.[A-Za-z0-9][A-Za-z0-9-]*)*$`)

// isValidName reports whether host can be a name in a certificate.
func isValidName(host string) bool { return len(host) <= 253 && hostPattern.MatchString(host) }

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
