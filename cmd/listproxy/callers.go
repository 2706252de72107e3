package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/proxy/certs"
)

// callerOptions say by what, besides a token, a caller is known, and for how long it is remembered
// what one may do. Where kube-apiserver has such a flag, it has the same name.
type callerOptions struct {
	flags *pflag.FlagSet // to tell what was given

	clientCAFile string

	frontCAFile        string
	frontAllowedNames  []string
	frontUsername      []string
	frontUID           []string
	frontGroup         []string
	frontExtraPrefixes []string
	reviewTTL          time.Duration

	// What Validate makes of them.
	clientCA, frontCA *certs.ClientCA
}

func defaultCallerOptions() callerOptions {
	return callerOptions{
		frontUsername:      []string{"X-Remote-User"},
		frontUID:           []string{"X-Remote-Uid"},
		frontGroup:         []string{"X-Remote-Group"},
		frontExtraPrefixes: []string{"X-Remote-Extra-"},
		reviewTTL:          10 * time.Second,
	}
}

// AddFlags implements optionGroup.
func (o *callerOptions) AddFlags(fs *pflag.FlagSet) {
	o.flags = fs
	fs.StringVar(&o.clientCAFile, "client-ca-file", o.clientCAFile,
		"`file` with CAs, PEM: a caller with a certificate from one of them is the user that the certificate names;\n"+
			"listproxy impersonates that user at the API server")
	fs.StringVar(&o.frontCAFile, "requestheader-client-ca-file", o.frontCAFile,
		"`file` with CAs, PEM, of an authenticating proxy in front of listproxy")
	fs.StringSliceVar(&o.frontAllowedNames, "requestheader-allowed-names", o.frontAllowedNames,
		"common `names` in the certificates of the proxy of --requestheader-client-ca-file")
	fs.StringSliceVar(&o.frontUsername, "requestheader-username-headers", o.frontUsername,
		"`headers` in which that proxy says who the caller is")
	fs.StringSliceVar(&o.frontUID, "requestheader-uid-headers", o.frontUID, "`headers` with the user's uid")
	fs.StringSliceVar(&o.frontGroup, "requestheader-group-headers", o.frontGroup, "`headers` with the user's groups")
	fs.StringSliceVar(&o.frontExtraPrefixes, "requestheader-extra-headers-prefix", o.frontExtraPrefixes,
		"`prefixes` of headers with the user's extras")
	fs.DurationVar(&o.reviewTTL, "review-ttl", o.reviewTTL, "how long the API server's yes to a caller's list is remembered; 0 asks each time")
}

// Validate implements optionGroup.
func (o *callerOptions) Validate() (err error) {
	if err := checkDurations(durationFlag{"--review-ttl", o.reviewTTL, 0}); err != nil {
		return err
	}
	if o.clientCAFile != "" {
		if o.clientCA, err = certs.LoadClientCA("--client-ca-file", o.clientCAFile); err != nil {
			return err
		}
	}
	if o.frontCAFile == "" {
		return o.checkNoFront()
	}
	if len(o.frontAllowedNames) == 0 {
		return errors.New("--requestheader-client-ca-file needs --requestheader-allowed-names: the common names of the proxy's certificates; " +
			"without it every certificate of that CA could say to be anybody")
	}
	for _, name := range o.frontAllowedNames {
		if strings.TrimSpace(name) == "" {
			return errors.New("--requestheader-allowed-names holds an empty name: leave it out")
		}
	}
	if len(o.frontUsername) == 0 {
		return errors.New("--requestheader-username-headers is empty: give the name of a header, or leave the flag out")
	}
	o.frontCA, err = certs.LoadClientCA("--requestheader-client-ca-file", o.frontCAFile)
	return err
}

// checkNoFront makes sure that nothing is said about a proxy that no certificate is believed of:
// its headers would be removed, and its users be nobody.
func (o *callerOptions) checkNoFront() error {
	for _, flag := range []string{
		"requestheader-allowed-names", "requestheader-username-headers", "requestheader-uid-headers",
		"requestheader-group-headers", "requestheader-extra-headers-prefix",
	} {
		if o.flags.Changed(flag) {
			return fmt.Errorf("--%s is for --requestheader-client-ca-file, which is not given: give both or none", flag)
		}
	}
	return nil
}

// cas are the files that are there.
func (o *callerOptions) cas() []*certs.ClientCA {
	var cas []*certs.ClientCA
	for _, ca := range []*certs.ClientCA{o.clientCA, o.frontCA} {
		if ca != nil {
			cas = append(cas, ca)
		}
	}
	return cas
}

// authenticator says who sends a request, as the flags have it.
func (o *callerOptions) authenticator() (*authn.Authenticator, error) {
	var cfg authn.Config
	if o.clientCA != nil {
		cfg.ClientCA = o.clientCA.VerifyOptions
	}
	if o.frontCA != nil {
		cfg.FrontProxy = &authn.FrontProxy{
			CA:                  o.frontCA.VerifyOptions,
			AllowedNames:        o.frontAllowedNames,
			UsernameHeaders:     o.frontUsername,
			UIDHeaders:          o.frontUID,
			GroupHeaders:        o.frontGroup,
			ExtraHeaderPrefixes: o.frontExtraPrefixes,
		}
	}
	authenticator, err := authn.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("--requestheader-*: %w", err)
	}
	return authenticator, nil
}
