package policy

import (
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
	protobufType    = "application/vnd.kubernetes.protobuf"
	asMetadata      = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1" // for a list
	asEventMetadata = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"     // for the object in an event of a watch
)

// Arguments of the functions that have a parameter custom.
const builtinResource, customResource = false, true

// The tests in this file compare parseAccept with the API server's own code, which reads an Accept header in two steps:
//
//  1. The router of a built-in resource accepts or refuses the header (upstream.isRouted). Custom resources have none.
//  2. The endpoint chooses a media type and a kind (negotiation.NegotiateMediaTypeOptions).

// TestAccept: a list with one of these headers is answered, or forwarded for the wanted reason. (TestAcceptCombinations builds
// many other headers.)
func TestAccept(t *testing.T) {
	for _, group := range []struct {
		wantBuiltin reason.Reason       // for a built-in resource; None: answered
		wantCustom  reason.Reason       // for a custom resource; None: answered
		headers     map[string][]string // by a name, the values of the Accept header
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
			"clauses at the bound": {strings.Repeat("application/json,", maxAcceptClauses-1) + "text/html"},
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
			"two headers":                 {"application/json", "application/json"},
			"one clause too many":         {strings.Repeat("application/json,", maxAcceptClauses) + "text/html"},
		}},
	} {
		for name, values := range group.headers {
			t.Run(name, func(t *testing.T) {
				const watch = false
				accept := parseAccept(values, watch)
				if _, got := accept.representation(builtinResource); got != group.wantBuiltin {
					t.Errorf("a built-in resource: got reason %q, want %q", got, group.wantBuiltin)
				}
				if _, got := accept.representation(customResource); got != group.wantCustom {
					t.Errorf("a custom resource: got reason %q, want %q", got, group.wantCustom)
				}
				checkAccept(t, values, watch)
			})
		}
	}
}

// TestZeroAccept: the zero Accept has no representation.
func TestZeroAccept(t *testing.T) {
	for _, custom := range []bool{builtinResource, customResource} {
		representation, why := Accept{}.representation(custom)
		indented := (&Request{Pretty: true}).Indented(custom)
		if representation != "" || why != reason.Representation || indented {
			t.Errorf("custom %t: got %q, reason %q, indented %t; want none", custom, representation, why, indented)
		}
	}
}

// newScope returns the RequestScope with which the API server's endpoint for a resource negotiates. types are the media types
// that the API server can write. A custom resource may be written in all of them but protobuf, so its scope lists those. The
// scope of a built-in resource lists none, which means that all are allowed.
func newScope(types []runtime.SerializerInfo, custom bool) *handlers.RequestScope {
	scope := &handlers.RequestScope{
		MetaGroupVersion: metav1.SchemeGroupVersion, TableConvertor: rest.NewDefaultTableConvertor(schema.GroupResource{}),
	}
	if custom { // The endpoint writes only metadata as protobuf, with other serializers.
		isProtobuf := func(i runtime.SerializerInfo) bool { return i.MediaType == protobufType }
		scope.StandardSerializers = slices.DeleteFunc(slices.Clone(types), isProtobuf)
	}
	return scope
}

// upstream is an API server.
type upstream struct {
	types  []runtime.SerializerInfo // the media types that it can write
	routes *restful.Container       // the router, with a route for a built-in resource
}

// cbor is one more type of an API server with the feature CBORServingAndStorage.
var cbor = runtime.SerializerInfo{
	MediaType: "application/cbor", MediaTypeType: "application", MediaTypeSubType: "cbor",
	StreamSerializer: &runtime.StreamSerializerInfo{},
}

// newUpstream returns an API server that can write the default media types and moreTypes.
func newUpstream(moreTypes ...runtime.SerializerInfo) upstream {
	types := slices.Concat(scheme.Codecs.SupportedMediaTypes(), moreTypes)
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

// isRouted reports whether the router of the built-in resources accepts the header.
func (u upstream) isRouted(accept string) bool {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", http.NoBody)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	w := httptest.NewRecorder()
	u.routes.Dispatch(w, r)
	return w.Code == http.StatusOK
}

// upstreams are the API servers with which parseAccept must agree: one with the default features, and one that also writes
// CBOR.
var upstreams = []upstream{newUpstream(), newUpstream(cbor)}

// acceptCase is one comparison: of a list or a watch, with an Accept header, of a built-in or a custom resource.
type acceptCase struct {
	header  string   // the first Accept header; the API server ignores others
	request *Request // has what parseAccept reads from the header
	watch   bool     // the request is a watch, otherwise a list
	custom  bool     // the resource is a custom one
}

// checkAccept requires that parseAccept agrees with the API servers about an Accept header: if parseAccept finds a
// representation, every API server would write it. It reports whether parseAccept finds one for a built-in and for a custom
// resource.
func checkAccept(t *testing.T, values []string, watch bool) (hasBuiltin, hasCustom bool) {
	t.Helper()
	header := http.Header{"Accept": values}.Get("Accept")
	request := &Request{Accept: parseAccept(values, watch)}
	hasBuiltin = acceptCase{header: header, request: request, watch: watch, custom: builtinResource}.check(t)
	hasCustom = acceptCase{header: header, request: request, watch: watch, custom: customResource}.check(t)
	return hasBuiltin, hasCustom
}

// check makes the comparison, and reports whether parseAccept finds a representation.
func (c acceptCase) check(t *testing.T) (hasRepresentation bool) {
	t.Helper()
	representation, why := c.request.Accept.representation(c.custom)
	if why != reason.None { // the request is forwarded, which is right whatever the API servers do
		if sentence, _ := why.Explain(); representation != "" || sentence == "" {
			t.Errorf("Accept %q, custom %t: got representation %q and reason %q, want a reason alone",
				c.header, c.custom, representation, why)
		}
		return false
	}
	for _, server := range upstreams {
		if !c.custom && !server.isRouted(c.header) {
			t.Errorf("Accept %q: got %s, but the upstream's router answers 406", c.header, representation)
		}
		choice, ok := negotiation.NegotiateMediaTypeOptions(c.header, server.types, newScope(server.types, c.custom))
		if !ok {
			t.Errorf("Accept %q, custom %t: got %s, but the upstream answers 406", c.header, c.custom, representation)
		} else if difference := c.differenceTo(choice, representation); difference != "" {
			t.Errorf("Accept %q, custom %t, watch %t: got %s, but the upstream's choice has another %s: %+v",
				c.header, c.custom, c.watch, representation, difference, choice)
		}
	}
	return true
}

// differenceTo names the first difference between the API server's choice and the representation that parseAccept finds. It
// returns "" if there is none.
func (c acceptCase) differenceTo(choice negotiation.MediaTypeOptions, representation media.Representation) string {
	wantType := "application/json"
	if representation.IsProtobuf() {
		wantType = protobufType
	}
	var wantKind, gotKind schema.GroupVersionKind // zero if whole objects are written
	if choice.Convert != nil {
		gotKind = *choice.Convert
	}
	if representation.IsMetadata() {
		wantKind = metav1.SchemeGroupVersion.WithKind("PartialObjectMetadataList")
		if c.watch {
			wantKind.Kind = "PartialObjectMetadata"
		}
	}
	indented := choice.Pretty && choice.Accepted.PrettySerializer != nil
	switch {
	case choice.Accepted.MediaType != wantType:
		return "media type"
	case gotKind != wantKind:
		return "kind"
	case !c.watch && indented != c.request.Indented(c.custom): // events are never indented
		return "indentation"
	case !c.watch && choice.Stream != "":
		return "stream"
	case choice.UseServerVersion != "", choice.Export, choice.Profile != "", len(choice.Unrecognized) > 0:
		return "parameter"
	}
	return ""
}

// clause is one clause of an Accept header.
type clause struct {
	text       string
	isKept     bool // asks for a representation that is kept in memory
	isProtobuf bool // asks for protobuf of whole objects
}

// clausesOf returns the clauses from which TestAcceptCombinations builds headers: those of watches, or those of lists.
func clausesOf(watch bool) []clause {
	metadata, unsuitedMetadata := asMetadata, asEventMetadata
	if watch {
		metadata, unsuitedMetadata = asEventMetadata, asMetadata
	}
	var clauses []clause
	for _, group := range []struct {
		isKept, isProtobuf bool
		texts              []string
	}{
		{isKept: true, isProtobuf: true, texts: []string{protobufType, protobufType + ";q=0.9", protobufType + ";pretty=1"}},
		{isKept: true, texts: []string{
			"application/json", "application/json;q=0.5", "application/json;pretty=1", "application/json" + metadata,
			protobufType + metadata, "*/*;q=0.2",
		}},
		// A list that asks for a stream is forwarded.
		{isKept: watch, isProtobuf: true, texts: []string{protobufType + ";stream=watch"}},
		{isKept: watch, texts: []string{"application/json;stream=watch"}},
		{isKept: false, texts: []string{
			"application/json;as=Table;g=meta.k8s.io;v=v1", "application/json" + unsuitedMetadata,
			"application/json" + metadata + "beta1", // version v1beta1
			protobufType + ";as=Table;g=meta.k8s.io;v=v1", "application/yaml", "application/yaml;q=0.1" + metadata,
			"application/cbor", "application/*", "*", "text/html", "nonsense", "application/json;stream=other",
		}},
	} {
		for _, text := range group.texts {
			clauses = append(clauses, clause{text: text, isKept: group.isKept, isProtobuf: group.isProtobuf})
		}
	}
	return clauses
}

// sequences returns all sequences of clauses with this length.
func sequences(clauses []clause, length int) [][]clause {
	if length == 0 {
		return [][]clause{nil}
	}
	var all [][]clause
	for _, shorter := range sequences(clauses, length-1) {
		for _, c := range clauses {
			all = append(all, append(slices.Clip(shorter), c))
		}
	}
	return all
}

// TestAcceptCombinations: for every header of up to three clauses of clausesOf, parseAccept agrees with the API server's own
// code (checkAccept). A request is not forwarded without need: if listproxy keeps the representation of every clause,
//
//   - parseAccept finds a representation for a built-in resource;
//   - it finds one for a custom resource, too, unless all clauses ask for protobuf.
func TestAcceptCombinations(t *testing.T) {
	check := func(sequence []clause, watch bool) {
		// Build the header, such as "application/json;q=0.5,*/*;q=0.2".
		var texts []string
		allKept, allProtobuf := true, true
		for _, c := range sequence {
			texts = append(texts, c.text)
			allKept = allKept && c.isKept
			allProtobuf = allProtobuf && c.isProtobuf
		}
		header := strings.Join(texts, ",")
		hasBuiltin, hasCustom := checkAccept(t, []string{header}, watch)
		if !allKept {
			return // the request may be forwarded
		}
		wantCustom := !allProtobuf
		if !hasBuiltin || hasCustom != wantCustom {
			t.Errorf("Accept %q, watch %t: got a representation for built-in %t, for custom resources %t, want true and %t",
				header, watch, hasBuiltin, hasCustom, wantCustom)
		}
	}
	for watch, maxLength := range map[bool]int{ // the largest number of clauses
		false: 3,
		true:  2, // two are enough: only the parameters of a single clause differ from those of a list
	} {
		for length := 1; length <= maxLength; length++ {
			for _, sequence := range sequences(clausesOf(watch), length) {
				check(sequence, watch)
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
		for _, watch := range []bool{false, true} {
			checkAccept(t, []string{accept}, watch)
		}
	})
}

// TestAcceptsGzip: Gzip is true if the first header has the token gzip, in lower case and without parameters.
func TestAcceptsGzip(t *testing.T) {
	for want, headers := range map[bool][]string{
		true: {"gzip", " gzip ", "deflate, gzip", "gzip,deflate", "deflate,\tgzip, *"},
		false: {
			"", "gzip;q=1", "gzip;q=0", "*", "identity", "x-gzip",
			"GZIP",                        // kube-apiserver compares the case, too
			"br\r\nAccept-Encoding: gzip", // gzip stands in a second header
		},
	} {
		for _, header := range headers {
			got, why := parse(read(t, get("/api/v1/pods", alice, "Accept-Encoding: "+header+"\r\n")))
			if got.Gzip != want || why != reason.None {
				t.Errorf("Accept-Encoding %q: accepts gzip %t, want %t; reason %q", header, got.Gzip, want, why)
			}
		}
	}
}
