package sql

import (
	"sync"

	"github.com/alecthomas/participle/v2"
	"github.com/alecthomas/participle/v2/lexer"
)

// The grammar, as structs with tags that participle reads.
//
// An expression is parsed flat, operand operator operand …, and becomes a tree by
// precedence when it is compiled (precedence.go): a rule for each level of precedence would
// cost a dozen calls for every operand. The structs keep their positions in the text,
// because messages name the place and the plan for a client repeats parts of the query word
// for word.

// statement is all that can be parsed: a query, or the condition of a patch.
type statement struct {
	Query     *selectStmt `parser:"@@"`
	Condition *condition  `parser:"| @@"`
}

// condition is the predicate of a patch: a query without its SELECT.
type condition struct {
	From  *sourceRef `parser:"'FROM' @@"`
	Where *expr      `parser:"('WHERE' @@)?"`
}

// selectStmt is a SELECT: the query itself, or a subquery of it.
type selectStmt struct {
	Pos      lexer.Position
	Distinct bool         `parser:"'SELECT' @'DISTINCT'?"`
	Top      *operand     `parser:"('TOP' @@)?"`
	List     selection    `parser:"@@"`
	From     []*sourceRef `parser:"('FROM' @@ ('JOIN' @@)*)?"`
	Tail     tail         `parser:"@@"`
}

// selection is the list after SELECT. EndPos is needed for the text of the list in a
// rewritten query.
type selection struct {
	Pos    lexer.Position
	Star   bool    `parser:"@'*'"`
	Value  *expr   `parser:"| 'VALUE' @@"`
	Items  []*item `parser:"| @@ (',' @@)*"`
	EndPos lexer.Position
}

// tail is everything from WHERE on. It is a rule of its own so that its position is the end
// of FROM.
type tail struct {
	Pos    lexer.Position
	Where  *expr       `parser:"('WHERE' @@)?"`
	Group  []*expr     `parser:"('GROUP' 'BY' @@ (',' @@)*)?"`
	Order  []*orderRef `parser:"('ORDER' 'BY' @@ (',' @@)*)?"`
	Offset *operand    `parser:"('OFFSET' @@"`
	Limit  *operand    `parser:"'LIMIT' @@)?"`
}

// item is a column: an expression, and its name if the query gives it one.
type item struct {
	Expr  *expr  `parser:"@@"`
	Alias string `parser:"('AS'? @Ident)?"`
}

// sourceRef is a source of rows after FROM or JOIN. In `FROM x IN c.tags` Name is x and In
// is c.tags: the grammar cannot know at x whether it is an alias or a collection, so the
// compiler sorts it out.
type sourceRef struct {
	Pos   lexer.Position
	Sub   *selectStmt `parser:"( '(' @@ ')'"`
	Name  string      `parser:"| @Ident"`
	Path  []*suffix   `parser:"@@* )"`
	In    *sourceRef  `parser:"( 'IN' @@"`
	Alias string      `parser:"| 'AS'? @Ident )?"`
}

// orderRef is a key of ORDER BY.
type orderRef struct {
	Expr *expr `parser:"@@"`
	Desc bool  `parser:"('ASC' | @'DESC')?"`
}

// operand is the count of TOP, OFFSET or LIMIT: a number or a parameter, not an expression,
// as in the service.
type operand struct {
	Pos   lexer.Position
	Value string `parser:"@Literal"`
}

// expr is an expression, still flat: its first operand, and each operator with the operand
// after it.
type expr struct {
	Pos    lexer.Position
	First  *unary  `parser:"@@"`
	Rest   []*link `parser:"@@*"`
	EndPos lexer.Position
}

// link is an operator with its right operand. Not belongs to NOT IN, NOT LIKE and NOT
// BETWEEN; before any other operator it is refused by the compiler, which knows better than
// the grammar where it is.
type link struct {
	Pos   lexer.Position
	Not   bool   `parser:"@'NOT'?"`
	Op    string `parser:"@Op"`
	Right *unary `parser:"@@"`
}

// unary is an operand with the signs before it.
type unary struct {
	Signs   []string `parser:"@('NOT' | '-' | '+' | '~')*"`
	Primary *primary `parser:"@@"`
}

// primary is an operand without signs: a literal, a name, something in brackets, an array
// or an object, each followed by the steps into it.
type primary struct {
	Pos     lexer.Position
	Literal string     `parser:"( @Literal"`
	Name    string     `parser:"| @Ident | @Call | @'UDF'"`
	Group   *args      `parser:"| @@"`
	Array   *arrayLit  `parser:"| @@"`
	Object  *objectLit `parser:"| @@ )"`
	Suffix  []*suffix  `parser:"@@*"`
}

// args is a list in round brackets: arguments of a function, a list of IN, a group, or a
// subquery. Literals come before expressions, because the first alternative that fits is
// taken.
type args struct {
	Sub   *selectStmt `parser:"'(' ( @@"`
	Plain *literals   `parser:"| @@"`
	Exprs []*expr     `parser:"| @@ (',' @@)* )? ')'"`
}

// list is the expressions, whichever rule has read them.
func (a *args) list() []*expr { return a.Plain.or(a.Exprs) }

// arrayLit is an array in the query's text.
type arrayLit struct {
	Plain *literals `parser:"'[' (@@"`
	Exprs []*expr   `parser:"| @@ (',' @@)*)? ']'"`
}

// list is the elements, whichever rule has read them.
func (a *arrayLit) list() []*expr { return a.Plain.or(a.Exprs) }

// objectLit is an object in the query's text.
type objectLit struct {
	Members []*property `parser:"'{' (@@ (',' @@)*)? '}'"`
}

// property is a member of an objectLit. The grammar lets numbers pass as keys; the compiler
// does not.
type property struct {
	Key   string `parser:"@(Ident | Literal)"`
	Value *expr  `parser:"':' @@"`
}

// suffix is a step into a value, or a call of the name before it.
type suffix struct {
	Pos   lexer.Position
	Field string `parser:"'.' @Ident"`
	Index *expr  `parser:"| '[' @@ ']'"`
	Call  *args  `parser:"| @@"`
}

// parser is built when the first query is parsed, because building it reflects over all
// these structs, and a server that only reads and writes items never needs it.
var parser = sync.OnceValue(func() *participle.Parser[statement] {
	return participle.MustBuild[statement](participle.Lexer(definition{}))
})
