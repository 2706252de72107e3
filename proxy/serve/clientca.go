package serve

import (
	"fmt"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// ClientCA has the CAs of client certificates in a file, which [Certificates.Run] reads again. It is safe for
// concurrent use.
type ClientCA = dynamiccertificates.DynamicFileCAContent

// LoadClientCA returns the ClientCA in the file at path.
func LoadClientCA(path string) (*ClientCA, error) {
	ca, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: give a file with CA certificates, PEM", path, err)
	}
	return ca, nil
}
