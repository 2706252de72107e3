package main

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/listproxy/listproxy/proxy/auth"
)

// callerOptions has the CAs of callers' certificates, and the time for which callers' permissions are remembered.
// --client-ca-file is named as in kube-apiserver.
type callerOptions struct {
	clientCAFile string
	reviewTTL    time.Duration

	// clientCA is set by Validate, from clientCAFile. It is nil if client certificates are not accepted.
	clientCA *dynamiccertificates.DynamicFileCAContent
}

// AddFlags implements optionGroup.
func (o *callerOptions) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.clientCAFile, "client-ca-file", "",
		"`file` with CAs, PEM: a caller with a certificate from one of them is the user that the certificate names; "+
			"listproxy impersonates that user at the API server")
	fs.DurationVar(&o.reviewTTL, "review-ttl", 10*time.Second,
		"how long the API server's permission for a caller's list is remembered; 0 asks each time")
}

// Validate implements optionGroup. It also sets clientCA.
func (o *callerOptions) Validate() error {
	if err := checkDuration("--review-ttl", o.reviewTTL, 0); err != nil {
		return err
	}
	if o.clientCAFile == "" {
		return nil
	}
	clientCA, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", o.clientCAFile)
	if err != nil {
		return fmt.Errorf("--client-ca-file %s: %w: give a file with CA certificates, PEM", o.clientCAFile, err)
	}
	o.clientCA = clientCA
	return nil
}

// newAuthenticator returns the authenticator of callers. It accepts client certificates only with --client-ca-file.
func (o *callerOptions) newAuthenticator() *auth.Authenticator {
	if o.clientCA == nil {
		return auth.NewAuthenticator(nil) // a literal nil, since the method value of a nil clientCA is not nil
	}
	return auth.NewAuthenticator(o.clientCA.VerifyOptions)
}
