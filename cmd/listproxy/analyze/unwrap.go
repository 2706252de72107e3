package analyze

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// maxDepth bounds how deeply an event may be wrapped: in this many objects, lists and strings in all.
const maxDepth = 8

// eachEvent calls visit for every event in a line, in any order, and reports whether there is any. Exporters of logs wrap
// an event in objects, in lists, or in a string that holds JSON. Words without { and [, such as a time, may stand before
// the JSON, and more JSON may follow.
func eachEvent(line []byte, visit func(*auditEvent)) bool { return eachEventInText(line, 0, visit) }

// eachEventInText is [eachEvent] for a text that is wrapped in depth objects, lists and strings.
func eachEventInText(text []byte, depth int, visit func(*auditEvent)) (found bool) {
	start := bytes.IndexAny(text, "{[")
	if start < 0 || depth > maxDepth || !mayHaveEvent(text) {
		return false
	}
	// Nearly every line is one plain event. The decoder below would read it twice.
	if visitEvent(text[start:], visit) {
		return true
	}
	values := json.NewDecoder(bytes.NewReader(text[start:]))
	for {
		var value json.RawMessage
		if values.Decode(&value) != nil { // the end, or something that is not JSON
			return found
		}
		if eachEventInValue(value, depth, visit) {
			found = true
		}
	}
}

// eachEventInValue is [eachEvent] for a JSON value that is wrapped in depth objects, lists and strings. It ignores errors
// of json.Unmarshal, since the decoder has already checked that the value is JSON.
func eachEventInValue(value json.RawMessage, depth int, visit func(*auditEvent)) (found bool) {
	if depth > maxDepth || !mayHaveEvent(value) {
		return false
	}
	var elements []json.RawMessage
	switch value[0] {
	case '{':
		if visitEvent(value, visit) {
			return true
		}
		var members map[string]json.RawMessage
		_ = json.Unmarshal(value, &members)
		elements = slices.Collect(maps.Values(members))
	case '[':
		_ = json.Unmarshal(value, &elements)
	case '"':
		var text string
		_ = json.Unmarshal(value, &text)
		return eachEventInText([]byte(text), depth+1, visit)
	}
	for _, element := range elements {
		if eachEventInValue(element, depth+1, visit) {
			found = true
		}
	}
	return found
}

// visitEvent calls visit if the value is an event, and reports whether it is.
func visitEvent(value []byte, visit func(*auditEvent)) bool {
	var e auditEvent
	if json.Unmarshal(value, &e) != nil || !e.isEvent() {
		return false
	}
	visit(&e)
	return true
}

// mayHaveEvent is a quick test before anything is parsed. It reports false if text lacks the API group that each event
// names.
func mayHaveEvent(text []byte) bool { return bytes.Contains(text, []byte(auditv1.GroupName)) }
