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

// TestAccept: the representation of these headers, which TestAcceptCombinations does not have, is found, or the request is
// forwarded for the reason.
func TestAccept(t *testing.T) {
	const eleven, twelve = 11, 12 // clauses before the last; maxAcceptClauses is 12
	for _, group := range []struct {
		wantBuiltin, wantCustom reason.Reason // for built-in and for custom resources
		headers                 map[string][]string
	}{
		{wantBuiltin: reason.None, wantCustom: reason.None, headers: map[string][]string{
			"no header":            nil,
			"empty":                {""},
			"parameters reordered": {"application/json;v=v1;q=0.3;as=PartialObjectMetadataList;g=meta.k8s.io"},
			"spaces":               {" application/json ; v = v1 ; as = PartialObjectMetadataList ; g = meta.k8s.io "},
			"pretty metadata":      {"application/json;pretty=1" + asMetadata},
			"quality 0":            {"application/json;q=0"},
			"parameter without =":  {"application/json;foo"},
			"type without subtype": {"application, application/json"},
			"12 clauses":           {strings.Repeat("application/json,", eleven) + "text/html"},
		}},
		{wantBuiltin: reason.Representation, wantCustom: reason.None, headers: map[string][]string{
			// The API server's router refuses it for built-in resources (test/differential).
			"star": {"*"},
		}},
		{wantBuiltin: reason.None, wantCustom: reason.Representation, headers: map[string][]string{
			"protobuf":         {protobufType},
			"protobuf or YAML": {protobufType + ",application/yaml"},
		}},
		{wantBuiltin: reason.Representation, wantCustom: reason.Representation, headers: map[string][]string{
			"table or JSON (kubectl get)": {"application/json;as=Table;v=v1;g=meta.k8s.io,application/json"},
			"charset":                     {"application/json;charset=utf-8"},
		}},
		{wantBuiltin: reason.NotCanonical, wantCustom: reason.NotCanonical, headers: map[string][]string{
			"two headers": {"application/json", "application/json"},
			"13 clauses":  {strings.Repeat("application/json,", twelve) + "text/html"},
		}},
	} {
		for name, header := range group.headers {
			accept := parseAccept(header, false)
			_, builtin := accept.Representation(false)
			_, custom := accept.Representation(true)
			if builtin != group.wantBuiltin || custom != group.wantCustom {
				t.Errorf("%s: got reasons %q (built-in) and %q (custom), want %q and %q",
					name, builtin, custom, group.wantBuiltin, group.wantCustom)
			}
			checkAccept(t, header, false)
		}
	}
}

// TestZeroAccept: the zero Accept, of a header that was never read, has no representation.
func TestZeroAccept(t *testing.T) {
	for _, custom := range []bool{false, true} {
		representation, why := Accept{}.Representation(custom)
		indented := (&Request{Pretty: true}).Indented(custom)
		if representation != "" || why != reason.Representation || indented {
			t.Errorf("custom %t: got %q, reason %q, indented %t; want none", custom, representation, why, indented)
		}
	}
}

// newScope returns what the endpoint of a custom or a built-in resource allows.
func newScope(types []runtime.SerializerInfo, custom bool) *handlers.RequestScope {
	scope := &handlers.RequestScope{
		MetaGroupVersion: metav1.SchemeGroupVersion, TableConvertor: rest.NewDefaultTableConvertor(schema.GroupResource{}),
	}
	if custom { // a custom resource has no protobuf
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
	// Built-in resources, custom resources and lists of metadata have the same media types.
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

// routed reports whether the router of the built-in resources accepts the header.
func (u upstream) routed(accept string) bool {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", http.NoBody)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	w := httptest.NewRecorder()
	u.routes.Dispatch(w, r)
	return w.Code == http.StatusOK
}

// upstreams are the API servers with which parseAccept must agree.
var upstreams = []upstream{newUpstream(false), newUpstream(true)}

// checkAccept requires that every API server would write the representation that parseAccept finds. It reports whether
// there is a representation for a built-in and for a custom resource.
func checkAccept(t *testing.T, accept []string, watch bool) (builtin, custom bool) {
	t.Helper()
	request := &Request{Accept: parseAccept(accept, watch)}
	return checkAcceptOf(t, accept, request, watch, false), checkAcceptOf(t, accept, request, watch, true)
}

// checkAcceptOf is checkAccept for a built-in or a custom resource.
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
		got, ok := negotiation.NegotiateMediaTypeOptions(header, server.types, newScope(server.types, custom))
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

// TestAcceptCombinations: for every header of up to three of these clauses, parseAccept agrees with the API server's own
// code. If all clauses are known, it finds a representation, but not for a custom resource if all are protobuf.
func TestAcceptCombinations(t *testing.T) {
	type header struct {
		text     string
		known    bool // all clauses ask for a representation that is kept
		protobuf bool // all clauses ask for protobuf
	}
	for _, watch := range []bool{false, true} {
		metadata := asMetadata
		wrongMetadata := strings.Replace(asMetadata, "List", "", 1) // of a watch in a list, or the other way round
		maxClauses := 3
		if watch {
			metadata, wrongMetadata = wrongMetadata, metadata
			maxClauses = 2 // a watch has more clauses to combine
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
			"application/json;as=Table;g=meta.k8s.io;v=v1", "application/json" + wrongMetadata, "application/json" + metadata + "beta1",
			protobufType + ";as=Table;g=meta.k8s.io;v=v1", "application/yaml", "application/yaml;q=0.1" + metadata,
			"application/cbor", "application/*", "*", "text/html", "nonsense", "application/json;stream=other",
		} {
			clauses = append(clauses, header{text: text})
		}
		headers := []header{{known: true, protobuf: true}}
		for range maxClauses {
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
					t.Errorf("Accept %q, watch %t: got a representation for built-in %t, for custom resources %t, want true and %t",
						h.text, watch, builtin, custom, !h.protobuf)
				}
			}
		}
	}
}

// FuzzAccept: for every header, parseAccept finds the representation that the API server's own code would write, or none.
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

// TestAcceptsGzip: Gzip is true if the first header has the token gzip, in lower case and without parameters.
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
