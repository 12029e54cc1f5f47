package resolved

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Error is a fault of a resolved configuration at a dotted path, "" for the whole.
type Error struct{ Path, Msg string }

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Msg
	}
	return e.Path + ": " + e.Msg
}

// Parse reads a Config strictly: an unknown, doubled or missing key and a value of
// another type are errors of class Error, all at once.
func Parse(text []byte) (*Config, error) {
	var c Config
	err := json.Unmarshal(text, &c)
	if err == nil {
		if c.Mode == Disaggregated && c.KVTransfer == nil {
			c.KVTransfer = &KVTransfer{} // null: transfers take no time
		}
		var plain bytes.Buffer
		if again, _ := json.Marshal(c); json.Compact(&plain, text) == nil && bytes.Equal(again, plain.Bytes()) {
			return &c, nil // as written by Marshal, which leaves no room for a fault
		}
	} else if !json.Valid(text) {
		return nil, &Error{Msg: "no JSON: " + err.Error()}
	}
	w := walker{}
	w.value("", text, reflect.TypeFor[Config]())
	if len(w.faults) > 0 {
		return nil, errors.Join(w.faults...)
	}
	if err != nil {
		return nil, &Error{Msg: err.Error()}
	}
	return &c, nil
}

// shaped is a value whose keys depend on what it is.
type shaped interface {
	shape(text []byte) reflect.Type
}

func (c *TimingConfig) shape(text []byte) reflect.Type {
	var keys map[string]json.RawMessage
	if json.Unmarshal(text, &keys) == nil && keys["path"] != nil && keys["system"] == nil {
		return reflect.TypeFor[profileConfig]()
	}
	return reflect.TypeFor[HardwareModel]()
}

func (w *Workload) shape(text []byte) reflect.Type {
	var of struct{ Type json.RawMessage }
	if json.Unmarshal(text, &of) == nil && string(of.Type) == `"`+SyntheticType+`"` {
		return reflect.TypeFor[Synthetic]()
	}
	return reflect.TypeFor[Trace]()
}

func (m *ModelRef) shape(text []byte) reflect.Type { return nameOr[FileRef](text) }
func (f *FileRef) shape(text []byte) reflect.Type  { return nameOr[plainFile](text) }

func (b *Bytes) shape(text []byte) reflect.Type { return nameOr[float64](text) }

func nameOr[T any](text []byte) reflect.Type {
	if isString(text) {
		return reflect.TypeFor[string]()
	}
	return reflect.TypeFor[T]()
}

func (p *RouterPolicy) shape(text []byte) reflect.Type {
	var of struct {
		Families []json.RawMessage `json:"policy_families"`
	}
	if json.Unmarshal(text, &of) == nil && len(of.Families) == 0 {
		return reflect.TypeFor[singlePolicy]()
	}
	return reflect.TypeFor[plainPolicy]()
}

func (t *KVTransfer) shape([]byte) reflect.Type { return reflect.TypeFor[plainTransfer]() }

// walker compares a text with the type it should have.
type walker struct{ faults []error }

func (w *walker) fault(path, format string, args ...any) {
	w.faults = append(w.faults, &Error{path, fmt.Sprintf(format, args...)})
}

func (w *walker) value(path string, text json.RawMessage, t reflect.Type) {
	text = bytes.TrimSpace(text)
	null := string(text) == "null"
	if t.Kind() == reflect.Pointer {
		if !null {
			w.value(path, text, t.Elem())
		}
		return
	}
	if s, ok := reflect.New(t).Interface().(shaped); ok {
		shape := s.shape(text)
		if shape.Kind() != reflect.String {
			w.value(path, text, shape)
		} else if err := json.Unmarshal(text, s); err != nil {
			w.fault(path, "%v", err)
		}
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		w.object(path, text, t)
	case reflect.Slice:
		var items []json.RawMessage
		if err := json.Unmarshal(text, &items); err != nil {
			w.fault(path, "expected a list, got %s", brief(text))
		}
		for i, item := range items {
			w.value(fmt.Sprintf("%s[%d]", path, i), item, t.Elem())
		}
	default:
		if null || json.Unmarshal(text, reflect.New(t).Interface()) != nil {
			w.fault(path, "expected %s, got %s", kindName(t.Kind()), brief(text))
		}
	}
}

// object compares the keys of a mapping with the fields of a struct.
func (w *walker) object(path string, text []byte, t reflect.Type) {
	dec := json.NewDecoder(bytes.NewReader(text))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		w.fault(path, "expected a mapping, got %s", brief(text))
		return
	}
	fields := map[string]reflect.StructField{}
	var required, seen []string
	for i := range t.NumField() {
		key, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		fields[key] = t.Field(i)
		if options == "" {
			required = append(required, key)
		}
	}
	for dec.More() {
		token, _ := dec.Token() // the text is valid JSON
		key, _ := token.(string)
		var value json.RawMessage
		_ = dec.Decode(&value)
		at := join(path, key)
		field, known := fields[key]
		switch {
		case !known:
			w.fault(at, "unknown key")
		case slices.Contains(seen, key):
			w.fault(at, "the key is given twice")
		default:
			w.value(at, value, field.Type)
		}
		seen = append(seen, key)
	}
	for _, key := range required {
		if !slices.Contains(seen, key) {
			w.fault(join(path, key), "the key is missing")
		}
	}
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func kindName(k reflect.Kind) string {
	switch k {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number"
	case reflect.Uint64:
		return "a non-negative integer"
	}
	return "an integer"
}

// brief is a text short enough for a message.
func brief(text []byte) string {
	if len(text) > 40 {
		return string(text[:40]) + "..."
	}
	return string(text)
}
