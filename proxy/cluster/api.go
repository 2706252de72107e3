package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/proxy/upstream"
	"github.com/listproxy/listproxy/snapshot/wire"
)

const (
	// pageSize is the number of objects in a page of a list. It is small because the API server holds a whole page in
	// its memory, and a CustomResourceDefinition may have 1.5 MB (etcd's limit).
	pageSize = 50
	// pageTimeout bounds the time for reading a page.
	pageTimeout = time.Minute
)

// api reads from the upstream with listproxy's own credentials. It decodes one object of a list or watch at a time, since a
// cluster can have hundreds of megabytes of definitions.
type api struct {
	client *http.Client
	base   *url.URL
}

// newAPI returns an api with the credentials of cfg. The api follows no redirects, since the credentials are for the
// upstream only.
func newAPI(cfg *rest.Config) (*api, error) {
	base, err := upstream.BaseURL(cfg)
	if err != nil {
		return nil, err
	}
	client, err := kubehttp.NewClient(cfg)
	if err != nil {
		return nil, err
	}
	return &api{client: client, base: base}, nil
}

// object has all fields that this package reads, for objects of any kind.
type object struct {
	Metadata struct {
		Namespace       string    `json:"namespace"`
		Name            string    `json:"name"`
		UID             types.UID `json:"uid"`
		ResourceVersion string    `json:"resourceVersion"`
		Generation      int64     `json:"generation"`
		Labels          struct {
			Automanaged string `json:"kube-aggregator.kubernetes.io/automanaged"`
		} `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		// APIService only:
		Service *struct{} `json:"service"`
		// CustomResourceDefinition only:
		Scope    string              `json:"scope"`
		Versions []definitionVersion `json:"versions"`
		// Lease only:
		HolderIdentity string `json:"holderIdentity"`
	} `json:"spec"`
	Status struct {
		// CustomResourceDefinition only. The names are compared as bytes.
		AcceptedNames json.RawMessage `json:"acceptedNames"`
		// StorageVersion only:
		CommonEncodingVersion string `json:"commonEncodingVersion"`
		// CustomResourceDefinition and StorageVersion:
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
	// RBAC objects only. Rules, subjects and roles are compared as bytes.
	Rules    []json.RawMessage `json:"rules"`
	Subjects []json.RawMessage `json:"subjects"`
	RoleRef  json.RawMessage   `json:"roleRef"`
}

// get sends a GET, and returns the answer, whose body the caller must close. An answer other than a 200 is returned as a
// *wire.AnswerError.
func (a *api) get(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	u := a.base.JoinPath(path)
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer func() { _ = resp.Body.Close() }()
		return nil, wire.ReadAnswerError(resp)
	}
	return resp, nil
}

// getJSON sends a GET, and decodes the answer into value, which is a pointer.
func (a *api) getJSON(ctx context.Context, path string, timeout time.Duration, value any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resp, err := a.get(ctx, path, nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	return json.NewDecoder(resp.Body).Decode(value)
}

// list reads a list page by page, calls visit with each object, and returns the list's revision. If it returns an error, visit
// may have been called with some of the objects.
func (a *api) list(ctx context.Context, path, labels string, visit func(*object)) (revision string, _ error) {
	// A list without a resourceVersion has the newest state.
	query := url.Values{"limit": {strconv.Itoa(pageSize)}, "labelSelector": {labels}}
	for {
		meta, err := a.requestPage(ctx, path, query, visit)
		if err != nil || meta.Continue == "" {
			return meta.ResourceVersion, err
		}
		query.Set("continue", meta.Continue)
	}
}

// requestPage requests one page of a list, and calls visit with each object.
func (a *api) requestPage(ctx context.Context, path string, query url.Values, visit func(*object)) (metav1.ListMeta, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	resp, err := a.get(ctx, path, query)
	if err != nil {
		return metav1.ListMeta{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	return readPage(json.NewDecoder(resp.Body), visit)
}

// readPage decodes one page of a list, and calls visit with each item as soon as it is decoded.
func readPage(in *json.Decoder, visit func(*object)) (metav1.ListMeta, error) {
	var meta metav1.ListMeta
	if _, err := in.Token(); err != nil { // the opening brace
		return meta, err
	}
	for in.More() {
		key, err := in.Token()
		if err != nil {
			return meta, err
		}
		switch key {
		case "metadata":
			err = in.Decode(&meta)
		case "items":
			err = readItems(in, visit)
		default:
			err = in.Decode(&json.RawMessage{}) // skips the value
		}
		if err != nil {
			return meta, err
		}
	}
	if _, err := in.Token(); err != nil { // the closing brace
		return meta, err
	}
	// Every list of an API server has a resourceVersion.
	if meta.ResourceVersion == "" {
		return meta, errors.New("the answer is not a list: it has no resourceVersion")
	}
	return meta, nil
}

// readItems decodes the array of a list's items, and calls visit with each. Instead of an empty array, there may be null.
func readItems(in *json.Decoder, visit func(*object)) error {
	opening, err := in.Token()
	if err != nil || opening == nil { // null
		return err
	}
	for in.More() {
		o := &object{}
		if err := in.Decode(o); err != nil {
			return err
		}
		visit(o)
	}
	_, err = in.Token() // the closing bracket
	return err
}

// readEvent returns the next event of a watch. It returns an ERROR event as an error, which has a *wire.AnswerError in its
// tree.
func readEvent(in *json.Decoder) (watch.EventType, *object, error) {
	var event struct {
		Type   watch.EventType `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := in.Decode(&event); err != nil {
		return "", nil, err
	}
	if event.Type == watch.Error {
		var status metav1.Status
		err := json.Unmarshal(event.Object, &status) // if it fails, the AnswerError has the code 0
		return "", nil, errors.Join(err, &wire.AnswerError{Code: int(status.Code), Message: status.Message})
	}
	o := &object{}
	return event.Type, o, json.Unmarshal(event.Object, o)
}
