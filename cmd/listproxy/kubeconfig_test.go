package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd/api"
)

func twoContexts() *api.Config {
	return &api.Config{
		CurrentContext: "work",
		Contexts: map[string]*api.Context{
			"work":  {Cluster: "work", AuthInfo: "me", Namespace: "team-a"},
			"home":  {Cluster: "home", AuthInfo: "cert"},
			"split": {Cluster: "nowhere", AuthInfo: "me"},
		},
		Clusters: map[string]*api.Cluster{
			"work": {Server: "https://api.work:6443", CertificateAuthorityData: []byte("theirs"), TLSServerName: "api", ProxyURL: "http://proxy"},
			"home": {Server: "https://api.home:6443", InsecureSkipTLSVerify: true},
		},
		AuthInfos: map[string]*api.AuthInfo{
			"me":   {Token: "secret"},
			"cert": {ClientCertificateData: []byte("cert"), ClientKeyData: []byte("key")},
		},
	}
}

func TestPointAt(t *testing.T) {
	got, err := pointAt(twoContexts(), "", "https://proxy:8443", []byte("ours"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]*api.Cluster{"work": {Server: "https://proxy:8443", CertificateAuthorityData: []byte("ours")}}, got.Clusters); diff != "" {
		t.Errorf("clusters (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]*api.AuthInfo{"me": {Token: "secret"}}, got.AuthInfos); diff != "" {
		t.Errorf("the user's own credentials (-want +got):\n%s", diff)
	}
	if got.CurrentContext != "work" || got.Contexts["work"].Namespace != "team-a" || len(got.Contexts) != 1 {
		t.Errorf("the context: %+v", got.Contexts)
	}
}

func TestPointAtNothing(t *testing.T) {
	none := twoContexts()
	none.CurrentContext = ""
	for _, tt := range []struct {
		name    string
		cfg     *api.Config
		context string
		says    string
	}{
		{"no current context", none, "", "--context"},
		{"no such context", twoContexts(), "away", "away"},
		{"no such cluster", twoContexts(), "split", "split"},
		{"a client certificate only", twoContexts(), "home", "token"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := pointAt(tt.cfg, tt.context, "https://proxy:8443", nil); err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want an error that says %q", err, tt.says)
			}
		})
	}
}
