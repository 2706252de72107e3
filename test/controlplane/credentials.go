package controlplane

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/util/keyutil"

	"github.com/listproxy/listproxy/test/harness/secrets"
)

// Files of a control plane's directory.
const (
	tokenFile          = "tokens.csv"
	caFile             = "ca.crt"
	servingCertFile    = "apiserver.crt"
	servingKeyFile     = "apiserver.key"
	accountKeyFile     = "service-account.key"
	accountPublicFile  = "service-account.pub"
	kubeconfigFolder   = "kubeconfig"
	kubectlHomeFolder  = "home"
	etcdDataFolder     = "etcd"
	etcdSnapshotPrefix = "etcd-snapshot-"
)

// credentials are those of [Users]. They do not change.
type credentials struct {
	issuer *Authority
	tokens map[string]string
	certs  map[string]keyPair
}

// A keyPair is a certificate and its key, in PEM.
type keyPair struct{ cert, key []byte }

// newCredentials creates all keys, certificates and tokens, and writes those that the API
// server reads into dir.
func newCredentials(dir string) (c *credentials, err error) {
	c = &credentials{tokens: map[string]string{}, certs: map[string]keyPair{}}
	if c.issuer, err = NewAuthority("listproxy test control plane"); err != nil {
		return nil, err
	}
	servingCert, servingKey, err := c.issuer.issueServing("localhost", "kubernetes.default.svc")
	if err != nil {
		return nil, err
	}
	key, err := newKey() // signs and verifies service account tokens
	if err != nil {
		return nil, err
	}
	accountKey, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, err
	}
	accountPublic, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	var lines strings.Builder
	for _, u := range Users() {
		if u.token {
			c.tokens[u.Name] = rand.Text()
			secrets.Suite.Add("the token of "+u.Name, c.tokens[u.Name])
			fmt.Fprintf(&lines, "%s,%s,%s,%q\n", c.tokens[u.Name], u.login, "uid-"+u.login, strings.Join(u.groups, ","))
		}
		if u.cert {
			cert, key, err := c.issuer.Issue(pkix.Name{CommonName: u.login, Organization: u.groups}, nil)
			if err != nil {
				return nil, err
			}
			c.certs[u.Name] = keyPair{cert, key}
		}
		// Who has no token can only be impersonated by a proxy. (The others' names are theirs to say.)
		if u.cert && !u.token {
			secrets.Suite.AddIdentity("the name of "+u.Name+", who logs in with a certificate,", u.login)
		}
	}
	for name, content := range map[string][]byte{
		caFile:            c.issuer.PEM(),
		servingCertFile:   servingCert,
		servingKeyFile:    servingKey,
		accountKeyFile:    accountKey,
		accountPublicFile: pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: accountPublic}),
		tokenFile:         []byte(lines.String()),
	} {
		secrets.Suite.AddKey("the key in "+name, content)
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return nil, fmt.Errorf("write credentials: %w", err)
		}
	}
	return c, nil
}
