package serve

import (
	"crypto/x509"
	"fmt"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// ClientCA has the CAs of client certificates in a file, which [Certificates.Run] reads again. It is safe for
// concurrent use.
type ClientCA struct {
	path    string
	content *dynamiccertificates.DynamicFileCAContent
}

// LoadClientCA returns the ClientCA in the file at path.
func LoadClientCA(path string) (*ClientCA, error) {
	content, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: give a file with CA certificates, PEM", path, err)
	}
	return &ClientCA{path: path, content: content}, nil
}

// VerifyOptions returns the options for verifying a certificate now: it must be for client authentication.
func (c *ClientCA) VerifyOptions() (x509.VerifyOptions, bool) { return c.content.VerifyOptions() }
