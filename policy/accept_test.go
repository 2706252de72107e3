package policy

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
)

func TestNegotiate(t *testing.T) {
	for name, test := range map[string]struct {
		accept []string
		want   Representation
		reason Reason
	}{
		"absent":             {nil, JSON, ""},
		"empty":              {[]string{""}, JSON, ""},
		"JSON":               {[]string{"application/json"}, JSON, ""},
		"any":                {[]string{"*/*"}, JSON, ""},
		"JSON, any":          {[]string{"application/json, */*"}, JSON, ""},
		"JSON with quality":  {[]string{"application/json;q=0.8"}, JSON, ""},
		"quality 0":          {[]string{"application/json;q=0"}, JSON, ""},
		"bare parameter":     {[]string{"application/json;foo"}, JSON, ""},
		"JSON over protobuf": {[]string{"application/vnd.kubernetes.protobuf;q=0.5,application/json"}, JSON, ""},
		"unparsable, JSON":   {[]string{"application, application/json"}, JSON, ""},

		"typed client":       {[]string{"application/vnd.kubernetes.protobuf,application/json"}, "", ReasonRepresentation},
		"protobuf over JSON": {[]string{"application/json;q=0.5,application/vnd.kubernetes.protobuf"}, "", ReasonRepresentation},
		"yaml":               {[]string{"application/yaml"}, "", ReasonRepresentation},
		"cbor":               {[]string{"application/cbor"}, "", ReasonRepresentation},
		"unknown first":      {[]string{"text/html,application/json"}, "", ReasonRepresentation},
		"nothing that parses": {
			[]string{"application"}, "", ReasonRepresentation,
		},
		// The API server's router refuses these for built-in resources (test/differential).
		"a star":          {[]string{"*"}, "", ReasonRepresentation},
		"any application": {[]string{"application/*"}, "", ReasonRepresentation},
		"spaces inside":   {[]string{"application / json"}, "", ReasonRepresentation},
		"a tab":           {[]string{"\tapplication/json"}, "", ReasonRepresentation},
		"any JSON":        {[]string{"*/json"}, "", ReasonRepresentation},
		"kubectl get": {
			[]string{"application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"}, "", ReasonRepresentation,
		},
		"metadata client": {
			[]string{"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}, "", ReasonRepresentation,
		},
		"charset": {[]string{"application/json;charset=utf-8"}, "", ReasonRepresentation},
		"stream":  {[]string{"application/json;stream=watch"}, "", ReasonRepresentation},
		"pretty":  {[]string{"application/json;pretty=1"}, "", ReasonPretty},
		"any, pretty": {
			[]string{"*/*;pretty=1"}, "", ReasonPretty,
		},
		"not pretty": {[]string{"application/json;pretty=0"}, "", ReasonRepresentation},
		"pretty Table": {
			[]string{"application/json;as=Table;v=v1;g=meta.k8s.io;pretty=1"}, "", ReasonRepresentation,
		},
		"upper case": {[]string{"Application/JSON"}, "", ReasonRepresentation},

		"two lines":    {[]string{"application/json", "application/json"}, "", ReasonNotCanonical},
		"twelve types": {[]string{strings.Repeat("application/json,", 11) + "text/html"}, JSON, ""},
		"too many types": {
			[]string{strings.Repeat("application/json,", 12) + "text/html"}, "", ReasonNotCanonical,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, reason := negotiate(test.accept)
			if got != test.want || reason != test.reason {
				t.Errorf("negotiate = %q, %q; want %q, %q", got, reason, test.want, test.reason)
			}
			checkAccept(t, test.accept)
		})
	}
}

// upstreamTypes are kube-apiserver's serializers, in its order.
func upstreamTypes() []runtime.SerializerInfo {
	stream := &runtime.StreamSerializerInfo{}
	return []runtime.SerializerInfo{
		{MediaType: "application/json", MediaTypeType: "application", MediaTypeSubType: "json", StreamSerializer: stream},
		{MediaType: "application/yaml", MediaTypeType: "application", MediaTypeSubType: "yaml"},
		{MediaType: "application/vnd.kubernetes.protobuf", MediaTypeType: "application", MediaTypeSubType: "vnd.kubernetes.protobuf", StreamSerializer: stream},
		{MediaType: "application/cbor", MediaTypeType: "application", MediaTypeSubType: "cbor"},
	}
}

// anything allows every transformation, so that the first clause counts.
type anything struct{}

func (anything) AllowsMediaTypeTransform(string, string, *schema.GroupVersionKind) bool { return true }

func (anything) AllowsServerVersion(string) bool { return true }

func (anything) AllowsStreamSchema(string) bool { return true }

// checkAccept: where we say JSON, the API server says plain JSON.
func checkAccept(t *testing.T, accept []string) {
	t.Helper()
	representation, reason := negotiate(accept)
	if reason != "" {
		if representation != "" || !slices.Contains(Reasons(), reason) {
			t.Errorf("negotiate(%q) = %q, %q", accept, representation, reason)
		}
		return
	}
	header := ""
	if len(accept) > 0 {
		header = accept[0]
	}
	// Custom resources have no protobuf; the answer has to be the same.
	all := upstreamTypes()
	for _, types := range [][]runtime.SerializerInfo{all, all[:2]} {
		options, ok := negotiation.NegotiateMediaTypeOptions(header, types, anything{})
		switch {
		case !ok:
			t.Errorf("Accept %q: JSON, the upstream says not acceptable", header)
		case options.Accepted.MediaType != "application/json" || options.Convert != nil || options.Pretty ||
			options.Stream != "" || options.UseServerVersion != "" || options.Export || options.Profile != "" || len(options.Unrecognized) > 0:
			t.Errorf("Accept %q: JSON, the upstream says %+v", header, options)
		}
	}
	if representation != JSON {
		t.Errorf("negotiate(%q) = %q", accept, representation)
	}
}

func FuzzAccept(f *testing.F) {
	for _, accept := range []string{
		"",
		"*",
		"*/*",
		"application/json",
		"application/*;q=0.5, application/json;q=nan",
		"application/vnd.kubernetes.protobuf,application/json",
		"application/json;as=Table;v=v1;g=meta.k8s.io, application/json",
		"application/json;pretty=1",
		"application/json; charset=utf-8, text/html;q=0",
		"application/json;q=0.1,application/yaml;q=0.2,*/*;q=0.3",
	} {
		f.Add(accept)
	}
	f.Fuzz(func(t *testing.T, accept string) {
		checkAccept(t, []string{accept})
	})
}

func TestAcceptsGzip(t *testing.T) {
	for header, want := range map[string]bool{
		"":                  false,
		"gzip":              true,
		" gzip ":            true,
		"deflate, gzip":     true,
		"gzip,deflate":      true,
		"deflate,\tgzip, *": true,
		"gzip;q=1":          false,
		"gzip;q=0":          false,
		"GZIP":              false,
		"*":                 false,
		"identity":          false,
		"x-gzip":            false,
	} {
		if got := acceptsGzip(header); got != want {
			t.Errorf("acceptsGzip(%q) = %t", header, got)
		}
	}
}
