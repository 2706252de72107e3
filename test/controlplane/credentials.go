package controlplane

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

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

// credentials is who may log in and how. It does not change after it was made.
type credentials struct {
	ca     []byte
	issuer *authority
	tokens map[string]string
	certs  map[string]keyPair
	known  map[string]bool
}

// newCredentials makes all keys, certificates and tokens and writes into dir what the API
// server reads.
func newCredentials(dir string) (*credentials, error) {
	ca, err := newAuthority("listproxy test control plane")
	if err != nil {
		return nil, err
	}
	serving, err := ca.serving("localhost", "kubernetes.default.svc")
	if err != nil {
		return nil, err
	}
	accountKey, accountPublic, err := newAccountKey()
	if err != nil {
		return nil, err
	}
	c := &credentials{
		ca:     ca.pem,
		issuer: ca,
		tokens: map[string]string{},
		certs:  map[string]keyPair{},
		known:  map[string]bool{},
	}
	var lines strings.Builder
	for _, u := range Users() {
		c.known[u.Name] = true
		if u.token {
			c.tokens[u.Name] = rand.Text()
			secrets.Suite.Add("the token of "+u.Name, c.tokens[u.Name])
			fmt.Fprintf(&lines, "%s,%s,%s,%q\n",
				c.tokens[u.Name], u.login, "uid-"+u.login, strings.Join(u.groups, ","))
		}
		if u.cert {
			if c.certs[u.Name], err = ca.client(u.login, u.groups...); err != nil {
				return nil, err
			}
			secrets.Suite.AddKey("the key of "+u.Name, c.certs[u.Name].key)
		}
		// Who has no token can only be impersonated by a proxy. (The others' names are theirs to say.)
		if u.cert && !u.token {
			secrets.Suite.AddIdentity("the name of "+u.Name+", who logs in with a certificate,", u.login)
		}
	}
	for name, content := range map[string][]byte{
		caFile:            ca.pem,
		servingCertFile:   serving.cert,
		servingKeyFile:    serving.key,
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

// newAccountKey makes the key that signs and verifies service account tokens.
func newAccountKey() (private, public []byte, err error) {
	key, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	if private, err = keyPEM(key); err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, nil, fmt.Errorf("encode the service account key: %w", err)
	}
	return private, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

// writeKubeconfigs writes one kubeconfig for every user. clientcmd gives files the mode 0600.
func (c *credentials) writeKubeconfigs(dir, url string) error {
	for _, u := range Users() {
		login := clientcmdapi.NewAuthInfo()
		switch {
		case u.token:
			login.Token = c.tokens[u.Name]
		case u.cert:
			login.ClientCertificateData = c.certs[u.Name].cert
			login.ClientKeyData = c.certs[u.Name].key
		}
		cluster := clientcmdapi.NewCluster()
		cluster.Server, cluster.CertificateAuthorityData = url, c.ca
		context := clientcmdapi.NewContext()
		context.Cluster, context.AuthInfo = "controlplane", u.Name

		config := clientcmdapi.NewConfig()
		config.Clusters[context.Cluster] = cluster
		config.AuthInfos[context.AuthInfo] = login
		config.Contexts[u.Name] = context
		config.CurrentContext = u.Name
		if err := clientcmd.WriteToFile(*config, kubeconfigPath(dir, u.Name)); err != nil {
			return fmt.Errorf("write the kubeconfig of %s: %w", u.Name, err)
		}
	}
	return nil
}

func kubeconfigPath(dir, user string) string {
	return filepath.Join(dir, kubeconfigFolder, user+".yaml")
}
