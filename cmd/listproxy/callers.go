package main

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/proxy/serve"
)

// callerOptions has the CAs of callers' certificates, and the time for which callers' permissions are remembered.
// --client-ca-file is named as in kube-apiserver.
type callerOptions struct {
	clientCAFile string
	reviewTTL    time.Duration

	clientCA *serve.ClientCA // set by Validate, from clientCAFile; nil if client certificates are not accepted
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
	clientCA, err := serve.LoadClientCA(o.clientCAFile)
	if err != nil {
		return fmt.Errorf("--client-ca-file: %w", err)
	}
	o.clientCA = clientCA
	return nil
}

// newAuthenticator returns the authenticator of callers. It accepts client certificates only with --client-ca-file.
func (o *callerOptions) newAuthenticator() *auth.Authenticator {
	if o.clientCA == nil {
		return auth.NewAuthenticator(nil) // without certificates; (*serve.ClientCA)(nil).VerifyOptions would not be nil
	}
	return auth.NewAuthenticator(o.clientCA.VerifyOptions)
}
