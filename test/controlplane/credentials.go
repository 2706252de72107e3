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
	accountKey, accountPublic, err := newAccountKey()
	if err != nil {
		return nil, err
	}
	var lines strings.Builder // of the token file
	for _, u := range Users() {
		line, err := c.add(u)
		if err != nil {
			return nil, err
		}
		lines.WriteString(line)
	}
	for name, content := range map[string][]byte{
		caFile:            c.issuer.PEM(),
		servingCertFile:   servingCert,
		servingKeyFile:    servingKey,
		accountKeyFile:    accountKey,
		accountPublicFile: accountPublic,
		tokenFile:         []byte(lines.String()),
	} {
		secrets.Suite.AddKey("the key in "+name, content)
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return nil, fmt.Errorf("write credentials: %w", err)
		}
	}
	return c, nil
}

// newAccountKey returns a key that signs service account tokens, and the public key that verifies them, in PEM.
func newAccountKey() (private, public []byte, err error) {
	key, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	if private, err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	return private, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), err
}

// add creates the token and the certificate of a user, and returns the user's line in the token file, if there is a token.
func (c *credentials) add(u User) (line string, err error) {
	if u.token {
		c.tokens[u.Name] = rand.Text()
		secrets.Suite.Add("the token of "+u.Name, c.tokens[u.Name])
		line = fmt.Sprintf("%s,%s,%s,%q\n", c.tokens[u.Name], u.login, "uid-"+u.login, strings.Join(u.groups, ","))
	}
	if !u.cert {
		return line, nil
	}
	cert, key, err := c.issuer.Issue(pkix.Name{CommonName: u.login, Organization: u.groups}, nil)
	c.certs[u.Name] = keyPair{cert, key}
	if !u.token {
		// listproxy names the user of a certificate in Impersonate-* headers, so that name might leak. It does not know the
		// name of a token's user.
		secrets.Suite.AddIdentity("the name of "+u.Name+", who logs in with a certificate,", u.login)
	}
	return line, err
}
