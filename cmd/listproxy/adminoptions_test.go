package main

import (
	"net/url"
	"slices"
	"strings"
	"testing"
)

func TestAdminHosts(t *testing.T) {
	for _, host := range []string{"http://a.example.com", "a.example.com:8081", "*.example.com", "a b", "a/b", "-a"} {
		if _, err := parse("--admin-hosts", host); err == nil || !strings.Contains(err.Error(), "--admin-hosts") || !strings.Contains(err.Error(), "write it") {
			t.Errorf("%q: %v", host, err)
		}
	}
	o, err := parse("--admin-hosts", "a.example.com,B.example.com")
	if err != nil {
		t.Fatal(err)
	}
	names := o.admin.names(&url.URL{Scheme: "https", Host: "api.example.com:6443"})
	for _, want := range []string{"a.example.com", "B.example.com", "api.example.com"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not among %q", want, names)
		}
	}
}
