package policy

import (
	"cmp"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/emicklei/go-restful/v3"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/policy/reason"
)

const (
	protobufType = "application/vnd.kubernetes.protobuf"
	asMetadata   = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// TestAccept: these headers, which TestAcceptCombinations does not make, are answered or forwarded as the table says.
func TestAccept(t *testing.T) {
	const answered, forwarded, unclear = reason.None, reason.Representation, reason.NotCanonical
	for name, test := range map[string]struct {
		accept      []string // the header's lines
		wantBuiltin reason.Reason
		wantCustom  reason.Reason // for custom resources
	}{
		"absent": {accept: nil, wantBuiltin: answered, wantCustom: answered},
		"empty":  {accept: []string{""}, wantBuiltin: answered, wantCustom: answered},
		"other order": {
			accept:      []string{"application/json;v=v1;q=0.3;as=PartialObjectMetadataList;g=meta.k8s.io"},
			wantBuiltin: answered, wantCustom: answered,
		},
		"spaces": {
			accept:      []string{" application/json ; v = v1 ; as = PartialObjectMetadataList ; g = meta.k8s.io "},
			wantBuiltin: answered, wantCustom: answered,
		},
		"pretty metadata": {
			accept: []string{"application/json;pretty=1" + asMetadata}, wantBuiltin: answered, wantCustom: answered,
		},
		"quality 0":      {accept: []string{"application/json;q=0"}, wantBuiltin: answered, wantCustom: answered},
		"bare parameter": {accept: []string{"application/json;foo"}, wantBuiltin: answered, wantCustom: answered},
		"unparsable, JSON": {
			accept: []string{"application, application/json"}, wantBuiltin: answered, wantCustom: answered,
		},
		"twelve types": {
			accept:      []string{strings.Repeat("application/json,", 11) + "text/html"},
			wantBuiltin: answered, wantCustom: answered,
		},
		// The API server's router refuses it for built-in resources (test/differential).
		"a star":        {accept: []string{"*"}, wantBuiltin: forwarded, wantCustom: answered},
		"protobuf only": {accept: []string{protobufType}, wantBuiltin: answered, wantCustom: forwarded},
		"protobuf, yaml": {
			accept: []string{protobufType + ",application/yaml"}, wantBuiltin: answered, wantCustom: forwarded,
		},
		"kubectl get": {
			accept:      []string{"application/json;as=Table;v=v1;g=meta.k8s.io,application/json"},
			wantBuiltin: forwarded, wantCustom: forwarded,
		},
		"charset":   {accept: []string{"application/json;charset=utf-8"}, wantBuiltin: forwarded, wantCustom: forwarded},
		"two lines": {accept: []string{"application/json", "application/json"}, wantBuiltin: unclear, wantCustom: unclear},
		"too many types": {
			accept:      []string{strings.Repeat("application/json,", 12) + "text/html"},
			wantBuiltin: unclear, wantCustom: unclear,
		},
	} {
		accept := parseAccept(test.accept, false)
		_, builtin := accept.Representation(false)
		_, custom := accept.Representation(true)
		if builtin != test.wantBuiltin || custom != test.wantCustom {
			t.Errorf("%s: %q and %q, want %q and %q", name, builtin, custom, test.wantBuiltin, test.wantCustom)
		}
		checkAccept(t, test.accept, false)
	}
	for _, custom := range []bool{false, true} { // a header that was never read
		representation, why := (Accept{}).Representation(custom)
		if indented := (&Request{Pretty: true}).Indented(custom); representation != "" || why != forwarded || indented {
			t.Errorf("custom %t: the zero Accept is answered with %q, %q, indented %t", custom, representation, why, indented)
		}
	}
}

// restrictions are what the endpoint of a custom resource, or of a built-in one, allows.
func restrictions(types []runtime.SerializerInfo, custom bool) *handlers.RequestScope {
	scope := &handlers.RequestScope{
		MetaGroupVersion: metav1.SchemeGroupVersion, TableConvertor: rest.NewDefaultTableConvertor(schema.GroupResource{}),
	}
	if custom { // has no protobuf
		isProtobuf := func(i runtime.SerializerInfo) bool { return i.MediaType == protobufType }
		scope.StandardSerializers = slices.DeleteFunc(slices.Clone(types), isProtobuf)
	}
	return scope
}

// upstream is an API server with or without the feature CBORServingAndStorage.
type upstream struct {
	types  []runtime.SerializerInfo
	routes *restful.Container
}

func newUpstream(cbor bool) upstream {
	// Those of the built-in resources, of custom ones and of lists of metadata are all alike.
	types := slices.Clone(scheme.Codecs.SupportedMediaTypes())
	if cbor {
		types = append(types, runtime.SerializerInfo{
			MediaType: "application/cbor", MediaTypeType: "application", MediaTypeSubType: "cbor",
			StreamSerializer: &runtime.StreamSerializerInfo{},
		})
	}
	var produced []string
	for _, info := range types {
		produced = append(produced, info.MediaType)
		if info.StreamSerializer != nil {
			produced = append(produced, info.MediaType+";stream=watch")
		}
	}
	service := new(restful.WebService).Path("/api/v1").Consumes("*/*")
	service.Route(service.GET("/pods").Produces(produced...).To(func(*restful.Request, *restful.Response) {}))
	container := restful.NewContainer()
	container.Router(restful.CurlyRouter{})
	container.Add(service)
	return upstream{types: types, routes: container}
}

// routed asks the router of the built-in resources.
func (u upstream) routed(accept string) bool {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", http.NoBody)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	w := httptest.NewRecorder()
	u.routes.Dispatch(w, r)
	return w.Code == http.StatusOK
}

// upstreams are the API servers that our answer has to be right for.
var upstreams = []upstream{newUpstream(false), newUpstream(true)}

// checkAccept requires that the API server would write the representation that parseAccept gives. It returns whether
// there is one, for a built-in resource and for a custom one.
func checkAccept(t *testing.T, accept []string, watch bool) (builtin, custom bool) {
	t.Helper()
	request := &Request{Accept: parseAccept(accept, watch)}
	return checkAcceptOf(t, accept, request, watch, false), checkAcceptOf(t, accept, request, watch, true)
}

// checkAcceptOf is checkAccept for one kind of resource.
func checkAcceptOf(t *testing.T, accept []string, request *Request, watch, custom bool) (answered bool) {
	t.Helper()
	representation, why := request.Accept.Representation(custom)
	if why != "" {
		if representation != "" || !slices.Contains(reason.Forwarding(), why) {
			t.Errorf("Accept %q, custom %t: %q, %q", accept, custom, representation, why)
		}
		return false
	}
	wantType := "application/json"
	if representation.IsProtobuf() {
		wantType = protobufType
	}
	var convert schema.GroupVersionKind
	if representation == media.MetadataJSON || representation == media.MetadataProtobuf {
		convert = metav1.SchemeGroupVersion.WithKind("PartialObjectMetadataList")
		if watch {
			convert.Kind = "PartialObjectMetadata"
		}
	}
	header := strings.Join(accept, "")
	for _, server := range upstreams {
		if !custom && !server.routed(header) {
			t.Errorf("Accept %q: %s, the upstream's router says not acceptable", header, representation)
		}
		got, ok := negotiation.NegotiateMediaTypeOptions(header, server.types, restrictions(server.types, custom))
		switch {
		case !ok:
			t.Errorf("Accept %q, custom %t: %s, the upstream says not acceptable", header, custom, representation)
		case !watch && request.Indented(custom) != (got.Pretty && got.Accepted.PrettySerializer != nil):
			t.Errorf("Accept %q, custom %t: indented %t, the upstream says %+v", header, custom, request.Indented(custom), got)
		case got.Accepted.MediaType != wantType || got.Stream != "" && !watch || got.UseServerVersion != "" || got.Export ||
			got.Profile != "" || len(got.Unrecognized) > 0 || *cmp.Or(got.Convert, &schema.GroupVersionKind{}) != convert:
			t.Errorf("Accept %q, custom %t, watch %t: %s, the upstream says %+v", header, custom, watch, representation, got)
		}
	}
	return true
}

// TestAcceptCombinations asks the API server's own code about every header of up to three of these clauses. A header
// whose clauses all ask for something else than a Table is answered; but custom resources have no protobuf.
func TestAcceptCombinations(t *testing.T) {
	type header struct {
		text     string
		known    bool // all clauses are
		protobuf bool // all clauses are
	}
	for _, watch := range []bool{false, true} {
		metadata, other, mostClauses := asMetadata, strings.Replace(asMetadata, "List", "", 1), 3
		if watch {
			metadata, other, mostClauses = other, metadata, 2
		}
		var clauses []header
		for _, text := range []string{protobufType, protobufType + ";q=0.9", protobufType + ";pretty=1"} {
			clauses = append(clauses, header{text: text, known: true, protobuf: true})
		}
		for _, text := range []string{
			"application/json", "application/json;q=0.5", "application/json;pretty=1", "application/json" + metadata,
			protobufType + metadata, "*/*;q=0.2",
		} {
			clauses = append(clauses, header{text: text, known: true})
		}
		clauses = append(clauses,
			header{text: protobufType + ";stream=watch", known: watch, protobuf: true},
			header{text: "application/json;stream=watch", known: watch},
		)
		for _, text := range []string{
			"application/json;as=Table;g=meta.k8s.io;v=v1", "application/json" + other, "application/json" + metadata + "beta1",
			protobufType + ";as=Table;g=meta.k8s.io;v=v1", "application/yaml", "application/yaml;q=0.1" + metadata,
			"application/cbor", "application/*", "*", "text/html", "nonsense", "application/json;stream=other",
		} {
			clauses = append(clauses, header{text: text})
		}
		headers := []header{{known: true, protobuf: true}}
		for range mostClauses {
			var longer []header
			for _, h := range headers {
				for _, c := range clauses {
					longer = append(longer, header{
						text: strings.TrimPrefix(h.text+","+c.text, ","), known: h.known && c.known, protobuf: h.protobuf && c.protobuf,
					})
				}
			}
			headers = longer
			for _, h := range headers {
				builtin, custom := checkAccept(t, []string{h.text}, watch)
				if h.known && (!builtin || custom == h.protobuf) {
					t.Errorf("Accept %q, watch %t: answered %t, custom resources %t", h.text, watch, builtin, custom)
				}
			}
		}
	}
}

// FuzzAccept: whatever a header says, what listproxy would answer is what the API server's own code would write.
func FuzzAccept(f *testing.F) {
	for _, accept := range []string{
		"", "*", "*/*", "*/json", "application/*;q=0.5, application/json;q=nan", "application / json", "Application/JSON",
		protobufType + ",application/json", "application/cbor;q=0.1,*", "\tapplication/json",
		"application/json; charset=utf-8, text/html;q=0", "application/json;q=0.1,application/yaml;q=0.2,*/*;q=0.3",
		"application/json;as=Table;v=v1;g=meta.k8s.io, application/json",
		protobufType + asMetadata + ",application/json" + asMetadata, "application/json;pretty=1" + asMetadata,
		"application/json;as=PartialObjectMetadataList;g=meta.k8s.io,application/json",
		"application/json;sv=v1", "application/json;export=1", "application/json;profile=local", "application/json;pretty=0",
		"application/json; drop=metadata.managedFields,*/*; drop=metadata.managedFields",
	} {
		f.Add(accept)
	}
	f.Fuzz(func(t *testing.T, accept string) {
		checkAccept(t, []string{accept}, false)
		checkAccept(t, []string{accept}, true)
	})
}

// TestAcceptsGzip: gzip is accepted where the token is there without parameters, on the header's first line.
func TestAcceptsGzip(t *testing.T) {
	for want, headers := range map[bool][]string{
		true:  {"gzip", " gzip ", "deflate, gzip", "gzip,deflate", "deflate,\tgzip, *"},
		false: {"", "gzip;q=1", "gzip;q=0", "GZIP", "*", "identity", "x-gzip", "br\r\nAccept-Encoding: gzip"},
	} {
		for _, header := range headers {
			got, why := parse(read(t, get("/api/v1/pods", alice, "Accept-Encoding: "+header+"\r\n")))
			if got.Gzip != want || why != "" {
				t.Errorf("Accept-Encoding %q: accepts gzip %t, want %t; reason %q", header, got.Gzip, want, why)
			}
		}
	}
}
